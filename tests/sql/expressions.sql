-- Expressions of Spark SQL, by kind, one in a line, over the columns of test_expressions.py.

-- arrays and indexes
array(i, j)[1]
array(i, j)[0]
ARRAY(1, 2, 3)[2]
`array`(i, j)[1]
array(array(i, j), array(1, 2))[1][0]
array(st, st)[1].b.c
array(named_struct('q', i))[0].q
arr[0]
arr[1 + 1]
nested[1][0]
nested[0]
words[0]
split(s, ' ')[0]
(arr)[0]
array()
array(i)
array(NULL, i)
array(1, 2.5, 3L)
size(arr)
cardinality(arr)
element_at(arr, 1)
element_at(arr, -1)
try_element_at(arr, 9)
get(arr, 7)
array_contains(arr, 2)
array_position(words, 'a')
array_join(words, ',', '?')
array_sort(arr)
sort_array(arr, false)
array_distinct(array(1, 1, i))
array_union(arr, array(9))
array_except(arr, array(1))
array_intersect(arr, array(1, 5))
array_remove(arr, 2)
array_repeat(i, 2)
array_max(arr)
array_min(arr)
arrays_zip(arr, words)
arrays_overlap(arr, array(3))
slice(arr, 2, 1)
slice(arr, 1, 2)[0]
flatten(nested)
flatten(nested)[1]
sequence(1, 5, 2)
sequence(1, 5)[3]
reverse(arr)
concat(arr, array(1))
arr || array(1)
array_insert(arr, 1, 0)
array_append(arr, 9)
array_prepend(arr, 9)
array_compact(arr)
shuffle(array(i))[0]
people[0].name
people.name
people.age[0]
array_size(arr)

-- maps
m['k']
m['nope']
map('a', i, 'b', j)['b']
MAP(1, 'x')[1]
map('a', array(i, j))['a'][1]
map('a', st)['a'].b.d[0]
map_keys(m)
map_values(m)
map_entries(m)
map_entries(m)[0].key
map_from_arrays(array('a', 'b'), array(i, j))
map_from_entries(array(struct('a', i)))
map_concat(m, map('z', 26))
map_contains_key(m, 'k')
str_to_map('a:1,b:2', ',', ':')['a']
element_at(m, 'k')
try_element_at(m, 'l')
size(m)
m.k
map()

-- structs and fields
st.a
st.b.c
st.b.d[1 - 1]
st.`x y`
t.st.b.c
t.i
t.`odd name`
st['a']
st.b['c']
(st).a
(st.b).c
struct(i, j)
struct(i, j).i
struct(i AS one, j AS two)
struct(i AS one, j AS two).two
STRUCT(i + 1 AS one)
struct(i + 1, 'x').col2
(i, j)
(i, j).i
named_struct('a', i, 'b', named_struct('c', s))
named_struct('a', i, 'b', s).b
named_struct('x y', i).`x y`
st.b.d
ST.A
st = st
struct(1, 2) < struct(1, 3)

-- lambdas
transform(arr, x -> x + 1)
transform(arr, e -> e + i)
transform(arr, (e, n) -> e * n)
transform(arr, i -> i)
transform(arr, I -> i)
transform(arr, e -> e + t.x)
transform(people, p -> p.name)
transform(people, p -> p.age + 1)[0]
transform(nested, n -> transform(n, e -> e + size(n)))
transform(nested, n -> n[0])
filter(arr, e -> e > 1)
filter(arr, (e, n) -> n > 0 AND e IS NOT NULL)
filter(words, w -> w LIKE 'a%')
exists(arr, e -> e = 2)
exists(arr, e -> e IS NULL)
forall(arr, e -> e > 0)
aggregate(arr, 0, (acc, e) -> acc + coalesce(e, 0))
aggregate(arr, 0, (acc, e) -> acc + coalesce(e, 0), acc -> acc * 10)
reduce(arr, 1, (acc, e) -> acc * nvl(e, 1))
zip_with(arr, words, (a, b) -> concat(a, b))
transform_keys(m, (k, v) -> upper(k))
transform_values(m, (k, v) -> v + length(k))
map_filter(m, (k, v) -> v > 0)
map_zip_with(m, m, (k, a, b) -> a + b)
array_sort(arr, (l, r) -> CASE WHEN l > r THEN -1 WHEN l < r THEN 1 ELSE 0 END)
transform(arr, e -> struct(e AS v, i AS w))
transform(sequence(0, 2), n -> m['k'] + n)
transform(arr, x -> -x)
transform(arr, x -> x::string || '!')
transform(arr, x -> CASE WHEN x = 1 THEN 'one' END)
aggregate(people, 0, (sum, p) -> sum + nvl(p.age, 0))

-- casts
CAST(i AS STRING)
CAST(d AS INT)
CAST('12' AS BIGINT) + 1
CAST(s AS BINARY)
CAST(i AS DECIMAL(12,3))
CAST(i AS DECIMAL)
CAST(dec AS DECIMAL(5,1))
CAST(i AS TINYINT)
CAST(i AS SMALLINT)
CAST(i AS BYTE)
CAST(i AS SHORT)
CAST(i AS LONG)
CAST(i AS INTEGER)
CAST(i AS REAL)
CAST(i AS FLOAT)
CAST(i AS DOUBLE)
CAST(i AS NUMERIC(9, 1))
CAST(i AS DEC(9, 1))
CAST(i AS BOOLEAN)
CAST(s AS VARCHAR(3))
CAST('abc' AS CHAR(5))
CAST(ts AS DATE)
CAST(ts AS TIMESTAMP_NTZ)
CAST(ntz AS TIMESTAMP_LTZ)
CAST('2024-01-01' AS DATE)
CAST('2024-01-01 01:02:03' AS TIMESTAMP)
CAST(ts AS BIGINT)
CAST(arr AS ARRAY<STRING>)
CAST(m AS MAP<STRING, BIGINT>)
CAST(st.b AS STRUCT<c: STRING, d: ARRAY<BIGINT>>)
CAST(st.b AS STRUCT<e STRING, f: ARRAY<BIGINT>>).e
CAST('1' AS INTERVAL DAY)
CAST('1 02:03:04' AS INTERVAL DAY TO SECOND)
i::string
i::decimal(12,3)::string
-i::string
i + j::bigint
'5'::int * 2
arr::array<string>
st.a::string
try_cast('x' AS INT)
TRY_CAST(s AS DATE)
try_cast('7' AS INT) + 1
int('7')
string(i)
double(i)
bigint(dec)
date('2024-05-06')
timestamp('2024-05-06 07:08:09')
decimal(i)
boolean('true')
binary(s)
try_to_number('12', '99')
to_number('12.3', '99.9')
to_char(dec, '999.99')
CAST(to_json(st) AS STRING)

-- intervals
ts + INTERVAL 1 DAY
ts - INTERVAL '1' DAY
ts + INTERVAL '1 day'
ts + INTERVAL '1' DAY + INTERVAL '2' HOUR
ts - INTERVAL 1 HOUR 30 MINUTES
ts - INTERVAL '1' HOUR '30' MINUTES
ts - INTERVAL '1 hour 30 minutes'
ts + INTERVAL '1 02:03:04' DAY TO SECOND
ts + INTERVAL '1:30' MINUTE TO SECOND
ts + INTERVAL '1-2' YEAR TO MONTH
ts + INTERVAL 2 MONTHS
ts + INTERVAL -2 WEEKS
ts + INTERVAL '-3' DAYS
ts - -INTERVAL 1 DAY
ts + i * INTERVAL '1' SECOND
ts + INTERVAL 1 YEAR - INTERVAL 1 MONTH
ts + make_dt_interval(i)
dt + INTERVAL 1 MONTH
dt - INTERVAL '1' YEAR
dt + 1
dt - 1
dt - DATE '2024-01-01'
ts - TIMESTAMP '2024-01-01 00:00:00'
INTERVAL '5' MINUTE
INTERVAL 5 MINUTES * 2
INTERVAL '1.5' SECOND
INTERVAL 10 MILLISECONDS
INTERVAL 10 MICROSECONDS
INTERVAL '1' DAY > INTERVAL '5' HOURS
CAST(make_interval(0, 1, 0, 2) AS STRING)
CAST(make_ym_interval(1, i) AS STRING)
ts BETWEEN ts - INTERVAL 1 DAY AND ts + INTERVAL 1 DAY
ts + INTERVAL '1' minute
ts + interval 3 seconds
EXTRACT(HOUR FROM INTERVAL '5:30' HOUR TO MINUTE)
INTERVAL '2' DAY / 2

-- dates and times
DATE '2024-02-29'
date'2024-02-29'
TIMESTAMP '2024-02-29 01:02:03'
TIMESTAMP '2024-02-29 01:02:03.5 Europe/Berlin'
TIMESTAMP '2024-02-29T01:02:03Z'
TIMESTAMP '2024-02-29 01:02:03+05:30'
TIMESTAMP_NTZ '2024-02-29 01:02:03'
TIMESTAMP_LTZ '2024-02-29 01:02:03'
year(ts)
month(dt)
day(ts)
dayofmonth(dt)
dayofweek(dt)
dayofyear(dt)
weekday(dt)
weekofyear(dt)
quarter(ts)
hour(ts)
minute(ts)
second(ts)
EXTRACT(YEAR FROM ts)
extract(DOW FROM ts)
EXTRACT(DAYOFWEEK_ISO FROM dt)
EXTRACT(WEEK FROM dt)
EXTRACT(SECOND FROM ts)
EXTRACT(seconds FROM ts)
EXTRACT(MONTH FROM dt) + 1
date_part('MINUTE', ts)
date_part('doy', dt)
datepart('hour', ts)
date_trunc('HOUR', ts)
date_trunc('week', dt)
date_trunc('MILLISECOND', ts)
trunc(dt, 'MM')
trunc(dt, 'year')
date_add(dt, 3)
date_sub(dt, i)
add_months(dt, 1)
months_between(ts, dt)
datediff(dt, DATE '2024-01-01')
date_diff(dt, DATE '2024-01-01')
DATEDIFF(DAY, DATE '2024-01-01', dt)
datediff(HOUR, TIMESTAMP '2024-01-01 00:00:00', ts)
TIMESTAMPDIFF(SECOND, TIMESTAMP '2024-01-01 00:00:00', ts)
timestampadd(MONTH, 1, ts)
dateadd(DAY, 2, dt)
DATE_ADD(WEEK, 1, ts)
last_day(dt)
next_day(dt, 'Mon')
to_date(ts)
to_date('29.02.2024', 'dd.MM.yyyy')
to_timestamp('2024-02-29 01:02:03')
to_timestamp('29/02/24 01', 'dd/MM/yy HH')
try_to_timestamp('nope')
to_timestamp_ntz('2024-02-29 01:02:03')
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSS')
date_format(dt, 'EEEE, d MMM')
unix_timestamp(ts)
unix_timestamp('2024-02-29', 'yyyy-MM-dd')
to_unix_timestamp(ts)
from_unixtime(0)
from_unixtime(60, 'HH:mm')
unix_millis(ts)
unix_date(dt)
timestamp_seconds(1700000000)
timestamp_millis(1700000000123)
date_from_unix_date(1)
make_date(2024, 2, 29)
make_timestamp(2024, 2, 29, 1, 2, 3.5)
from_utc_timestamp(ts, 'Asia/Tokyo')
to_utc_timestamp(ts, 'Asia/Tokyo')
convert_timezone('UTC', 'Asia/Tokyo', ntz)
CAST('2024-03-31 02:30:00 Europe/Berlin' AS TIMESTAMP)
ts > DATE '2024-01-01'
ts = '2024-02-29 13:45:59.123456'
dt > '2000-01-01'
greatest(ts, TIMESTAMP '2000-01-01 00:00:00')
monthname(dt)
dayname(dt)
typeof(current_date())
typeof(CURRENT_DATE)
typeof(CURRENT_TIMESTAMP)
typeof(now())
current_timezone()

-- strings
upper(s)
lower(s)
lcase(s)
ucase(s)
initcap(s)
length(s)
char_length(s)
len(s)
octet_length(s)
trim(s)
trim(BOTH FROM '  x ')
trim(LEADING 'x' FROM 'xxay')
trim(TRAILING 'y' FROM 'xxay')
trim(BOTH 'xy' FROM 'xxay')
trim('x' FROM 'xxay')
ltrim('x', 'xxay')
ltrim('  a')
rtrim('y', 'xxay')
btrim('xxayx', 'x')
substring(s, 2)
substring(s, 2, 3)
substr(s, -3)
SUBSTRING(s FROM 2)
SUBSTRING(s FROM 2 FOR 3)
substr(s FROM 2 FOR 3)
left(s, 2)
right(s, 2)
position('a', s)
position('a' IN s)
POSITION('a', s, 2)
locate('a', s)
instr(s, 'a')
overlay(s PLACING '_' FROM 2)
overlay(s PLACING 'ABC' FROM 2 FOR 0)
overlay(s, 'x', 1, 1)
concat(s, '-', i)
concat_ws('-', s, i, NULL, pat)
s || '-' || i
s || NULL
i || j
replace(s, 'a', 'o')
replace(s, 'a')
translate(s, 'ai', 'oy')
reverse(s)
repeat('ab', 2)
lpad(s, 20, '*')
rpad(s, 20)
split(s, ' ')
split(s, ' ', 2)
split_part(s, ' ', 1)
startswith(s, 'it')
endswith(s, '%')
contains(s, 'Test')
find_in_set('b', 'a,b,c')
ascii(s)
chr(65)
char(66)
base64(bin)
unbase64('AQI=')
hex(bin)
hex(i)
unhex('4142')
md5(s)
sha1(s)
sha2(s, 256)
crc32(s)
hash(i, s)
xxhash64(s)
levenshtein('kitten', 'sitting')
soundex('Robert')
format_string('%d-%s', i, s)
printf('%05d', 42)
format_number(big, 2)
encode(s, 'utf-8')
decode(bin, 'ISO-8859-1')
decode(i, 7, 'seven', 'other')
elt(1, 'a', 'b')
space(2)
url_encode(s)
parse_url('http://h/p?q=1', 'QUERY', 'q')
mask('Abc-123')
luhn_check('79927398713')
quote(s)
to_varchar(i, '999')
uuid() IS NOT NULL
s COLLATE UNICODE_CI = 'IT''S A tEST_100%'

-- literals of strings
'plain'
"double"
'it''s'
'it\'s'
"say ""hi"""
"it's"
'say "hi"'
'back\\slash'
'tab\tnew\nline'
'zero\0end'
'\u0041\u00e9'
'\101'
'\x'
'\q'
'50\%'
'a\_b'
r'raw\n'
R'raw\d+'
r"raw\"
'a' 'b'
'a' "b" 'c'
'Ünïcödé ✓'
'-- no comment'
'/* no comment */'
''
length('\\\\')
'a;b'
'${x}'
'back\bspace'
'sub\Z'
concat('\\', '''')
'?'
':p'

-- regular expressions and likes
s LIKE 'it%'
s NOT LIKE 'it%'
s LIKE '%100\%'
s LIKE '%100\\%'
s LIKE '%100/%' ESCAPE '/'
s LIKE '%b/_c%' ESCAPE '/'
s NOT LIKE '%b|_c%' ESCAPE '|'
s ILIKE 'IT%'
s NOT ILIKE 'IT%'
s ILIKE '%T/_1%' ESCAPE '/'
s LIKE ANY ('it%', 'x%')
s LIKE SOME ('it%', 'x%')
s LIKE ALL ('it%', '%t%')
s NOT LIKE ANY ('it%', 'x%')
s NOT LIKE ALL ('it%', 'x%')
s ILIKE ANY ('IT%')
s RLIKE '^it'
s NOT RLIKE '^it'
s REGEXP 'T[a-z]+'
s RLIKE pat
s RLIKE '\\d+'
s RLIKE r'\d+'
s RLIKE '\d+'
rlike(s, 'it')
regexp(s, 'it')
regexp_like(s, 'it')
like(s, 'it%')
like(s, 'it/%', '/')
ilike(s, 'IT%')
regexp_extract(s, '([a-z]+)_([0-9]+)', 2)
regexp_extract(s, '([a-z]+)')
regexp_extract_all(s, '([a-z])', 1)
regexp_replace(s, '[aeiou]', '*')
regexp_replace(s, '(t)', '<$1>')
regexp_replace(s, 't', 'T', 3)
regexp_substr(s, '[0-9]+')
regexp_instr(s, '[0-9]+')
regexp_count(s, 't')
s LIKE pat
(s LIKE 'i%') = yes

-- JSON
get_json_object(js, '$.a.b[1]')
get_json_object(js, '$.n')
from_json(js, 'a struct<b: array<string>>').a.b[0]
from_json('{"a":1}', 'a INT').a
from_json('[1,2]', 'array<int>')[1]
from_json('{"t":"01/02/2024"}', 't DATE', map('dateFormat', 'dd/MM/yyyy')).t
to_json(st)
to_json(m)
to_json(struct(ts AS at))
schema_of_json('{"a":1}')
json_array_length('[1,2]')
json_object_keys('{"a":1,"b":2}')
to_json(parse_json('{"a":[1,2]}'))
variant_get(parse_json('{"a":[1,2]}'), '$.a[1]', 'int')
try_variant_get(parse_json('{"a":"x"}'), '$.a', 'int')
is_variant_null(parse_json('null'))
from_csv('1,x', 'a INT, b STRING').b
to_csv(struct(i, s))
xpath_string('<a><b>x</b></a>', 'a/b')

-- numbers
1L
1S
1Y
1.5D
1.5F
1.50BD
1e3
1E-3
1.5e3
2E3BD
1e3F
1e3D
.5
5.
123456789012
1234567890123456789012
1.10
-1
-1L
- 1
-1.5
-9223372036854775808L
-2147483648
0.10BD + 1
007
X'1F'
x'00ff'
typeof(1)
typeof(1L)
typeof(1S)
typeof(1Y)
typeof(1.0)
typeof(1.0BD)
typeof(1.0F)
typeof(1.0D)
typeof(1e3)
typeof(12345678901)
typeof(1E3BD)
typeof(dec / 3)
typeof(-1S)

-- arithmetic
i + j
i - j
i * j
i / j
i / 2
i % j
-i % j
i % -j
MOD(i, j)
mod(i, 2)
pmod(i, j)
i DIV j
big div 7
div(i, j)
-i
- -i
-(-i)
+i
+ + i
-i * j
i - -j
i - - 3
i -j
i - j - 1
i - (j - 1)
i / j / 2
i / (j / 2)
i * j % 4
i % 4 * j
i * (j % 4)
i DIV 2 * 2
i + j * 2 - 1
(i + j) * 2
dec / 3
dec * wide
dec / wide
dec % 5
dec + 1
dec DIV 2
wide / 3.000
1 / 3.0
1.0 / 3
1.0BD / 3
d / 3
f * 2
f + dec
big * 2
small + tiny
tiny * 2Y
round(dec, 1)
bround(2.5)
ceil(d)
ceiling(dec)
floor(-1.5)
floor(dec, 1)
abs(i)
sign(i)
negative(i)
positive(i)
power(i, 2)
pow(2, 10)
sqrt(16)
cbrt(27)
exp(1)
ln(10)
log(2, 8)
log(10)
log10(100)
log2(8)
greatest(i, j, 5)
least(i, j)
try_add(i, j)
try_divide(i, 0)
try_multiply(i, j)
try_subtract(i, j)
try_mod(i, 0)
width_bucket(i, 0, 10, 5)
conv('ff', 16, 10)
bin(i)
factorial(5)
e() > 2
round(pi(), 3)
isnan(d)
nanvl(d, 1)
trunc(dt, 'Q')
1 + 1
2 * 3 + 4

-- bits
i & j
i | j
i ^ j
~i
~i & j
-~i
i & j | 8
i | j & 8
i ^ j & 1
i ^ j | 1
i | j ^ j & i
s || i || j
i | 1 = 7
i & 1 + 1
i << 2
i >> 1
big >>> 1
i << 1 + 1
i << 1 & 4
i << 1 << 1
i + j << 1
shiftleft(i, 2)
shiftright(i, 1)
shiftrightunsigned(big, 1)
bit_count(i)
bit_get(big, 0)
getbit(big, 0)
i & ~1

-- conditions
CASE WHEN i > 0 THEN 'pos' WHEN i < 0 THEN 'neg' ELSE 'null' END
CASE i WHEN 7 THEN 'seven' ELSE 'other' END
CASE WHEN i > 0 THEN 1 END
CASE WHEN yes THEN CASE WHEN i = 7 THEN 1 ELSE 2 END ELSE 3 END
CASE WHEN i IS NULL THEN 0 ELSE i END + 1
CASE i + 1 WHEN j + 5 THEN 1 ELSE 2 END
IF(i > 0, 'a', 'b')
if(yes, i, NULL)
nvl2(i, 1, 2)
COALESCE(i, j, 0)
coalesce(NULL, i)
NULLIF(i, 7)
nullifzero(i)
zeroifnull(i)
NVL(i, -1)
ifnull(i, -1)
isnull(i)
isnotnull(i)
i IN (1, 7)
i NOT IN (1, 7)
i IN (1, NULL)
NOT i IN (1, 7)
s IN ('it''s a Test_100%', 'x')
(i, j) IN ((7, 3), (1, 1))
i IN (7)
i BETWEEN 1 AND 7
i NOT BETWEEN 1 AND 7
i BETWEEN j AND j + 5 AND yes
NOT i BETWEEN 1 AND 7
(i BETWEEN 1 AND 7) = yes
i = 7
i == 7
i <> 7
i != 7
i < j
i <= j
i > j
i >= j
NOT i = 7
! yes
!yes AND i > 0
NOT yes OR i > 0
NOT (yes OR i > 0)
yes AND i > 0 OR j > 2
yes AND (i > 0 OR j > 2)
yes OR i > 0 AND j > 2
yes AND i > 0 AND j > 2 AND d > 0
yes OR i > 0 OR j > 2 OR d > 0 OR f > 0
i <=> NULL
i <=> 7
NOT i <=> j
i IS NULL
i IS NOT NULL
yes IS TRUE
yes IS NOT TRUE
yes IS FALSE
yes IS NOT FALSE
yes IS UNKNOWN
yes IS NOT UNKNOWN
i IS DISTINCT FROM j
i IS NOT DISTINCT FROM 7
i = 7 IS NULL
i = 7 IS TRUE
i + 1 IS NULL
i = j = yes
i < j = yes
yes = (i < j)
i > 0 <=> yes
(i IS NULL) = yes
NULL
NULL = NULL
NULL <=> NULL
NULL AND false
NULL OR true
NOT NULL
true AND yes
TRUE
False
i = 7 AND s LIKE 'i%' AND dt IS NOT NULL AND arr[0] = 1
assert_true(true)
equal_null(i, j)
typeof(NULL)
i > 1 AND NOT yes
CASE WHEN i IN (7, 8) AND s LIKE '%t%' THEN 1 ELSE 0 END

-- names
`i`
`odd name`
`order`
`odd name` + `order`
t.`order`
`t`.`i`
`tick``s`
I
`I`
T.I
x
s
m.`k`
st.b.`c`
`upper`(s)

-- functions with ways of their own
hash(1)
ceil(dec, 1)
bigint(i)
date(ts)
luhn_check('1')
named_struct('if', i).`if`
array_contains(array(yes), true)
try_divide(1, 2)
input_file_name() IS NULL
version() IS NOT NULL
current_user() IS NOT NULL
current_database() IS NOT NULL
CURRENT_USER IS NOT NULL
rand(1) < 1
spark_partition_id() >= 0
monotonically_increasing_id() >= 0
sentences('a b')
random(1) < 1
to_binary('abc', 'utf-8')
bitmap_bit_position(i)
nvl(NULL, 1)
struct(i).i
date_add(dt, CAST(1 AS INT))
abs(-1)
make_timestamp_ntz(2024, 1, 1, 0, 0, 0)
timestamp_micros(1)
format_string('%s', NULL)
try_to_binary('zz', 'hex')
is_valid_utf8(s)
collation(s)
lower(s) = 'x' OR s IS NULL
substring_index('a.b.c', '.', 2)
array_position(arr, i - 6)
exists(words, w -> w = 'a') AND yes
filter(arr, e -> e IS NOT NULL)[0]
upper(/* why */ s)
