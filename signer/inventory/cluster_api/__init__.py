"""Objects of Cluster API: Clusters, Machines, MachinePools and what they refer to.

This room decides which of their fields count, and writes conditions on Clusters and Machines. It
never changes what Cluster API or a user wrote.
"""
