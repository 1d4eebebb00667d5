"""Parts of a cluster's member that face clients: relaying to the owner, and the owner's port for that."""
