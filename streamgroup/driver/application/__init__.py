"""The application around a coordinator: who speaks with it, who drains it, whether its JVM lives."""
