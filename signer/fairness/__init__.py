"""What one tenant may cost the others: threads, CPU time, memory, and calls to servers.

This room decides who has to wait. It never knows what the work is for: it imports no other package
of the signer.
"""
