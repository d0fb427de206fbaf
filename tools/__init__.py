"""What sets the development environment up and runs the project's commands in it."""
