// An exec plugin as they are usually written, for comparison: with client-go's types for what it reads and prints, and
// its clientset for the certificate that it would ask for if there was none in its cache.
package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/auth/exec"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cache string) error {
	_, config, err := exec.LoadExecCredentialFromEnv()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(cache)
	if err != nil {
		return err
	}
	var credential clientauthentication.ExecCredential
	if err := json.Unmarshal(content, &credential); err != nil {
		return err
	}
	if !fresh(credential.Status) {
		return renew(config)
	}
	return json.NewEncoder(os.Stdout).Encode(&credential)
}

func fresh(status *clientauthentication.ExecCredentialStatus) bool {
	block, _ := pem.Decode([]byte(status.ClientCertificateData))
	if block == nil {
		return false
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	return err == nil && time.Now().Before(certificate.NotAfter)
}

// The comparison never comes here, but a plugin that is linked without this would be none.
func renew(config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.CertificatesV1().CertificateSigningRequests().List(context.Background(), metav1.ListOptions{})
	return fmt.Errorf("the certificate is not valid, and this program gets no new one: %w", err)
}
