module pagefleet.io/e2e/cluster/lws

go 1.26.0

tool sigs.k8s.io/lws/cmd

require sigs.k8s.io/lws v0.7.0
