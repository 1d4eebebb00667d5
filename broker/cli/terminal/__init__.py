"""Parts that verbs share: arguments, tables, completion, the live view, the manual."""
