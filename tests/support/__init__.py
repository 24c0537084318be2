"""What several tests share, by topic."""
