// Vcsim runs VMware's simulator of vCenter Server, with the JSON form of its API, for tests.
//
// The simulator has the API as SOAP. This program adds the four methods of the JSON form that the
// signer calls: it decodes and encodes them with govmomi's own types, and calls the simulator inside
// of this process.
//
// It reads a list of virtual machines as JSON from stdin, and prints one line with its address and
// the file of its certificate. It ends when stdin ends.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"path"
	"reflect"
	"strings"
	"sync"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

const (
	api    = "/sdk/vim25/8.0.1.0/"
	header = "vmware-api-session-id"
)

type machine struct {
	UUID   string `json:"uuid"`
	Folder string `json:"folder"`
	// In base64, since the simulator copies properties with SOAP, where govmomi does not encode lists
	// of bytes. Null: no virtual TPM.
	Certificates []string `json:"certificates"`
}

var requests = map[string]func() soap.HasFault{
	"Login":                func() soap.HasFault { return &methods.LoginBody{Req: &types.Login{}} },
	"Logout":               func() soap.HasFault { return &methods.LogoutBody{Req: &types.Logout{}} },
	"FindAllByUuid":        func() soap.HasFault { return &methods.FindAllByUuidBody{Req: &types.FindAllByUuid{}} },
	"RetrievePropertiesEx": func() soap.HasFault { return &methods.RetrievePropertiesExBody{Req: &types.RetrievePropertiesEx{}} },
}

// gateway passes calls in JSON on to the simulator.
type gateway struct {
	service  *simulator.Service
	lock     sync.Mutex
	sessions map[string]bool
}

func (g *gateway) serve(response http.ResponseWriter, request *http.Request) {
	parts := strings.Split(strings.TrimPrefix(request.URL.Path, api), "/")
	if request.Method != http.MethodPost || len(parts) != 3 || requests[parts[2]] == nil {
		http.NotFound(response, request)
		return
	}
	body := requests[parts[2]]()
	value := reflect.ValueOf(body).Elem()
	parameters := value.FieldByName("Req")
	if err := types.NewJSONDecoder(request.Body).Decode(parameters.Interface()); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	this := types.ManagedObjectReference{Type: parts[0], Value: parts[1]}
	parameters.Elem().FieldByName("This").Set(reflect.ValueOf(this))
	if err := g.call(request.Context(), request.Header.Get(header), body); err != nil {
		giveFault(response, err)
		return
	}
	if parts[2] == "Login" {
		response.Header().Set(header, g.newSession())
	}
	returned := value.FieldByName("Res").Elem().FieldByName("Returnval")
	if !returned.IsValid() {
		response.WriteHeader(http.StatusNoContent)
		return
	}
	give(response, http.StatusOK, returned.Interface())
}

// call calls the simulator. The simulator does not know the sessions of the gateway.
func (g *gateway) call(ctx context.Context, token string, body soap.HasFault) error {
	g.lock.Lock()
	defer g.lock.Unlock()
	switch body := body.(type) {
	case *methods.LoginBody:
		return g.logIn(ctx, body)
	case *methods.LogoutBody:
		body.Res = &types.LogoutResponse{}
		delete(g.sessions, token)
		return nil
	}
	if !g.sessions[token] {
		return soap.WrapVimFault(&types.NotAuthenticated{})
	}
	if err := g.service.RoundTrip(ctx, body, body); err != nil {
		return err
	}
	if retrieved, ok := body.(*methods.RetrievePropertiesExBody); ok {
		return decodeCertificates(retrieved.Res.Returnval)
	}
	return nil
}

// decodeCertificates makes DER of the certificates in an answer, which is a copy.
func decodeCertificates(result *types.RetrieveResult) error {
	for _, content := range result.Objects {
		for _, property := range content.PropSet {
			devices, _ := property.Val.(types.ArrayOfVirtualDevice)
			for _, device := range devices.VirtualDevice {
				tpm, ok := device.(*types.VirtualTPM)
				if !ok {
					continue
				}
				for i, encoded := range tpm.EndorsementKeyCertificate {
					der, err := base64.StdEncoding.DecodeString(string(encoded))
					if err != nil {
						return err
					}
					tpm.EndorsementKeyCertificate[i] = der
				}
			}
		}
	}
	return nil
}

// logIn lets the simulator check the password.
func (g *gateway) logIn(ctx context.Context, body *methods.LoginBody) error {
	client := soap.NewClient(g.service.Listen, true)
	client.Namespace = "urn:vim25"
	return client.RoundTrip(ctx, body, body)
}

func (g *gateway) newSession() string {
	token := rand.Text()
	g.lock.Lock()
	defer g.lock.Unlock()
	g.sessions[token] = true
	return token
}

func give(response http.ResponseWriter, status int, value any) {
	content, err := encode(value)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadGateway)
		return
	}
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	_, _ = response.Write(content)
}

// encode returns JSON. The encoder would wrap a list, because it does not know that the result of
// the method is one.
func encode(value any) ([]byte, error) {
	if list := reflect.ValueOf(value); list.Kind() == reflect.Slice {
		elements := make([]json.RawMessage, list.Len())
		for i := range elements {
			element, err := encode(list.Index(i).Interface())
			if err != nil {
				return nil, err
			}
			elements[i] = element
		}
		return json.Marshal(elements)
	}
	var content bytes.Buffer
	err := types.NewJSONEncoder(&content).Encode(value)
	return content.Bytes(), err
}

func giveFault(response http.ResponseWriter, err error) {
	switch {
	case soap.IsSoapFault(err):
		give(response, http.StatusInternalServerError, soap.ToSoapFault(err).VimFault())
	case soap.IsVimFault(err):
		give(response, http.StatusInternalServerError, soap.ToVimFault(err))
	default:
		http.Error(response, err.Error(), http.StatusBadGateway)
	}
}

// prepare gives VMs of the simulator their folders, UUIDs and virtual TPMs.
func prepare(ctx context.Context, service *simulator.Service, machines []machine) error {
	client, err := vim25.NewClient(ctx, service)
	if err != nil {
		return err
	}
	finder := find.NewFinder(client)
	for i, wanted := range machines {
		datacenter := strings.Split(wanted.Folder, "/")[1]
		vm, err := finder.VirtualMachine(ctx, fmt.Sprintf("/%s/vm/%s_H0_VM%d", datacenter, datacenter, i))
		if err != nil {
			return err
		}
		folder, err := makeFolder(ctx, finder, wanted.Folder)
		if err != nil {
			return err
		}
		moved, err := folder.MoveInto(ctx, []types.ManagedObjectReference{vm.Reference()})
		if err != nil {
			return err
		}
		if err := moved.Wait(ctx); err != nil {
			return err
		}
		config := service.Context.Map.Get(vm.Reference()).(*simulator.VirtualMachine).Config
		config.Uuid = wanted.UUID
		if wanted.Certificates != nil {
			tpm := &types.VirtualTPM{}
			tpm.Key = 11000
			for _, encoded := range wanted.Certificates {
				tpm.EndorsementKeyCertificate = append(tpm.EndorsementKeyCertificate, []byte(encoded))
			}
			config.Hardware.Device = append(config.Hardware.Device, tpm)
		}
	}
	return nil
}

func makeFolder(ctx context.Context, finder *find.Finder, name string) (*object.Folder, error) {
	if folder, err := finder.Folder(ctx, name); err == nil {
		return folder, nil
	}
	above, err := finder.Folder(ctx, path.Dir(name))
	if err != nil {
		return nil, err
	}
	return above.CreateFolder(ctx, path.Base(name))
}

func run() error {
	decoder := json.NewDecoder(os.Stdin)
	var machines []machine
	if err := decoder.Decode(&machines); err != nil {
		return err
	}
	model := simulator.VPX()
	model.Datacenter, model.Machine = 2, len(machines)
	if err := model.Create(); err != nil {
		return err
	}
	defer model.Remove()
	model.Service.Listen = &url.URL{Host: "127.0.0.1:0", User: url.UserPassword("signer", "secret")}
	model.Service.TLS = new(tls.Config)
	calls := &gateway{service: model.Service, sessions: map[string]bool{}}
	model.Service.HandleFunc(api, calls.serve)
	server := model.Service.NewServer()
	defer server.Close()
	if err := prepare(context.Background(), model.Service, machines); err != nil {
		return err
	}
	file, err := server.CertificateFile()
	if err != nil {
		return err
	}
	fmt.Println(server.URL.Host, file)
	var end any
	_ = decoder.Decode(&end)
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
