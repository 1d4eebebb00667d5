"""What is on disk: the journal, the pages behind it and the directory of both."""
