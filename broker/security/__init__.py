"""Who is there and what they may do: identities, users, mechanisms, rules.

Pure rooms but for the files they read: no socket, no Proton, no reactor.
"""
