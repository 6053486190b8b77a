// The least that a compiled exec plugin can be, for comparison: the standard library alone, and no way to a certificate.
package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

type execCredential struct {
	Kind       string          `json:"kind"`
	APIVersion string          `json:"apiVersion"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Status     *status         `json:"status,omitempty"`
}

type status struct {
	ExpirationTimestamp   time.Time `json:"expirationTimestamp"`
	ClientCertificateData string    `json:"clientCertificateData"`
	ClientKeyData         string    `json:"clientKeyData"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cache string) error {
	var asked, credential execCredential
	if err := json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &asked); err != nil {
		return err
	}
	content, err := os.ReadFile(cache)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &credential); err != nil {
		return err
	}
	block, _ := pem.Decode([]byte(credential.Status.ClientCertificateData))
	if block == nil {
		return errors.New("no certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	if time.Now().After(certificate.NotAfter) {
		return errors.New("the certificate is not valid any more")
	}
	return json.NewEncoder(os.Stdout).Encode(&credential)
}
