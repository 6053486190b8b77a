// Prints a request as the kubelet's certificate manager makes it for kubernetes.io/kubelet-serving:
// crypto/x509 and encoding/pem as k8s.io/client-go/util/cert uses them. For build.py only.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
)

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName:   "system:node:worker-1",
			Organization: []string{"system:nodes"},
		},
		DNSNames:    []string{"worker-1", "worker-1.example.com"},
		IPAddresses: []net.IP{net.ParseIP("192.0.2.7"), net.ParseIP("2001:db8::7")},
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		panic(err)
	}
	if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}); err != nil {
		panic(err)
	}
}
