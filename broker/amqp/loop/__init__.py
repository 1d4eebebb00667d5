"""The event loop: sockets, handshakes, timers, and bounds on how much any client may ask of it."""
