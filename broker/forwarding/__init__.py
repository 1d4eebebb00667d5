"""Messages that leave for another broker (routes) or for another node when they may (channels)."""
