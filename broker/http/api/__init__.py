"""The HTTP API: the management model as JSON under `/api/v1`, one file a resource. It decides nothing."""
