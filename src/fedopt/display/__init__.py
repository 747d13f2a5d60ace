"""Output for people: progress, tables and HTML templates."""
