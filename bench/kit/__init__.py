"""What the benchmarks share: data, contenders in processes of their own, samples, reports."""
