// VMware's simulator of vCenter Server, for the tests of the platform vsphere.
module node-attestation.invalid/vcsim

go 1.25.0

require github.com/vmware/govmomi v0.55.0

require github.com/google/uuid v1.6.0 // indirect
