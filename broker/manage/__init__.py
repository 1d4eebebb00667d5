"""One model of views and commands; AMQP, HTTP and the command line are three faces of it.

It knows the engine and the policies, and neither Proton nor HTTP nor a terminal. All of it runs on the
thread that owns the engine; the views it hands out are frozen and may be read anywhere.
"""
