"""The protocol of vCenter: sessions and the inventory of virtual machines.

This room decides which objects are read. It never decides which virtual machine a Machine is:
`signer.platforms.vsphere` does.
"""
