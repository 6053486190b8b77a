//go:build every

package main

import (
	"context"

	"k8s.io/component-base/cli"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func init() {
	programs["kube-controller-manager"] = func() int {
		return cli.Run(controllermanager.NewControllerManagerCommand())
	}
	programs["kube-scheduler"] = func() int {
		return cli.Run(scheduler.NewSchedulerCommand())
	}
	programs["kubelet"] = func() int {
		return cli.Run(kubelet.NewKubeletCommand(context.Background()))
	}
	programs["kubeadm"] = func() int {
		kubeadmerrors.HandleError(kubeadm.Run()) // prints as kubeadm does, and exits
		return 0
	}
}
