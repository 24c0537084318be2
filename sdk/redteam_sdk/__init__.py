"""The redteam SDK: what production tool code imports."""
