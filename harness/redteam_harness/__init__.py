"""The harness: suites, launches, conversations, evidence, reports and the command line."""
