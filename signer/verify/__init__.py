"""What the signer checks, by the numbers of docs/protocol.md section 5: one file for each subject.

Order on an offer: R P A M E, from caches only. On an answer: R P C A Q, then M E (and S for
serving), then K, then I. A function here returns what it proved, or raises a leaf of
common/errors.py or signer/errors.py that carries its number; none returns a bool.

| check | what | where |
|---|---|---|
| R0 | the Cluster has opted in, and nothing leads around the signer | signer/verify/recognize.py |
| R1 | the signer name is ours, and nothing is decided yet | signer/verify/recognize.py |
| R2 | usages | request.py |
| R3 | requester | request.py |
| P1 | size limits | common/csr.py, common/pkcs10.py, common/evidence.py |
| P2 | PEM blocks | common/csr.py |
| P3 | request: own signature, key | common/pkcs10.py, signer/verify/parse.py, weak_keys.py |
| P4 | subject | common/pkcs10.py |
| P5 | extensions | common/pkcs10.py, signer/verify/parse.py |
| P6 | attestation data | common/evidence.py |
| C1 | age and master of the challenge | signer/verify/answer.py |
| A1 | attestation key | attestation_key.py |
| Q1 | quote: form and signature | quote.py |
| Q2 | quote: binding | quote.py |
| Q3 | PCRs: selection and digest | pcrs.py |
| Q4 | PCRs: policy; measured boot | pcrs.py, measured_boot.py, event_log.py |
| M1 | Machine of the provider ID | machine.py |
| M2 | Machine and Cluster are ready for a first join | machine.py |
| M3 | node name | machine.py |
| M4 | Node of that name | machine.py |
| M5 | a node asks for itself | request.py |
| M6 | signs against the Machine | machine.py |
| E1 | endorsement key: template and strength | endorsement_key.py, weak_keys.py |
| E2 | endorsement key: trust | endorsement_trust.py, registered_keys.py, signer/verify/x509/endorsement_certificate.py |
| E3 | endorsement key: not banned, not held | claims.py |
| K1 | claim of the key | claims.py |
| K2 | claim of the name | claims.py |
| K3 | the key once more | claims.py |
| S1 | serving: form of the names | serving_names.py |
| S2 | serving: names of the Machine | serving_names.py |
| S3 | serving: names of others | serving_names.py |
| I1 | certificate | signer/issue/certificate.py |

`kubelet_serving.py` puts together what requests to `kubernetes.io/kubelet-serving` have to pass.
"""
