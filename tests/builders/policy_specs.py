"""The `spec` of policies: one with every setting, and one for each problem."""

from signer.policy.policy import TrustMode

A, B = "aa" * 32, "bb" * 32

PLATFORM: dict[str, object] = {
    "type": "aws",
    "credentialsFile": "/etc/signer/aws/team-a",
    "locations": ["eu-central-1", "eu-west-1"],
}

VENDOR_KEY = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE6M4TQamNkBZPn0njnrVJZXBEjBLm
yi1RIYgAxLsS9W9Vix+OOsSfbfPvhCjba0EY2FUFFKUlsdMutXhks1ebZQ==
-----END PUBLIC KEY-----
"""

EVERY_SETTING: dict[str, object] = {
    "clusterSelector": {"namespaces": ["team-a", "team-b"], "matchLabels": {"stage": "test"}},
    "mode": "Attestation",
    "approval": "Disabled",
    "minimumVersion": "v1",
    "bootstrapGroups": ["joiners"],
    "endorsementKey": {
        "trust": "RegisteredAndCertified",
        "certificateAuthorities": ["/etc/signer/authorities"],
        "certificateRevocationLists": ["/etc/signer/lists"],
        "allowCertificatesWithoutUsage": True,
        "platform": PLATFORM,
    },
    "attestationKey": {"schemes": ["ecdsa-p384-sha384", "rsapss-3072-sha256"]},
    "pcrs": {
        "selection": {"sha256": [7, 4], "sha384": [0]},
        "mode": "Enforce",
        "allowed": {"sha256": {"4": [A, B], "7": [A.upper()]}, "sha384": {"0": ["cc" * 48]}},
        "signedBy": [
            {"keys": [VENDOR_KEY], "pcrs": {"sha256": [12, 11]}, "revoked": [A, B.upper()]},
        ],
        "until": [
            {"value": B.upper(), "time": "2026-12-31T00:00:00Z"},
            {"value": "dd" * 48, "time": "2027-01-01T00:00:00Z"},
        ],
        "variants": [
            {
                "machineSelector": {"matchLabels": {"pool": "edge"}},
                "allowed": {"sha256": {"4": [B], "7": [B]}, "sha384": {"0": ["dd" * 48]}},
            }
        ],
    },
    "eventLog": {
        "secureBoot": True,
        "platformKeys": [A],
        "signatureDatabases": [B],
        "bootLoaders": [A, "ee" * 48],
    },
    "nodeNames": {"machineName": True},
    "firstJoin": {"within": "2h"},
    "certificate": {"lifetime": "1h30m", "allowSharedAuthority": True},
    "nameReuse": "AfterCertificate",
    "renewals": {
        "unknownCredential": "Deny",
        "taintUnattested": True,
    },
    "autoApproveBindings": "Wait",
    "nodeLabels": "Enabled",
    "accessReview": "Require",
    "serving": {"builtin": "Approve", "nodeRefFallback": True},
}


def enforced(**changes: object) -> dict[str, object]:
    """Return a `pcrs` section in mode Enforce, with changes."""
    return {
        "selection": {"sha256": [7]},
        "mode": "Enforce",
        "allowed": {"sha256": {"7": [A]}},
        **changes,
    }


def signed_by(*, selection: list[int] | None = None, **changes: object) -> dict[str, object]:
    """Return a policy with one vendor's signatures, with changes of that rule."""
    selected = [7] if selection is None else selection
    allowed = {"sha256": {str(index): [A] for index in selected}}
    rule = {"keys": [VENDOR_KEY], "pcrs": {"sha256": [11]}, **changes}
    pcrs = enforced(selection={"sha256": selected}, allowed=allowed, signedBy=[rule])
    return {"pcrs": pcrs}


_FIRST_EIGHT = {"sha256": {str(index): [A] for index in range(8)}}

BAD_SPECS: dict[str, tuple[dict[str, object], str]] = {
    "unknown key": ({"pcr": {}}, "spec.pcr: unknown key"),
    "unknown nested key": ({"certificate": {"life": "1h"}}, "spec.certificate.life: unknown key"),
    "section is not a mapping": ({"pcrs": []}, "spec.pcrs: must be a mapping"),
    "section is empty": ({"pcrs": None}, "spec.pcrs: must be a mapping"),
    "unknown mode": ({"mode": "Off"}, "spec.mode: must be one of Attestation, ServingOnly"),
    **{
        f"ServingOnly with {key}": (
            {"mode": "ServingOnly", key: value},
            f"spec.{key}: must be absent with mode ServingOnly",
        )
        for key, value in {
            "endorsementKey": {"trust": "FirstUse"},
            "attestationKey": {"schemes": ["ecdsa-p256-sha256"]},
            "pcrs": {"mode": "Record"},
            "eventLog": {"secureBoot": True},
            "bootstrapGroups": ["joiners"],
            "firstJoin": {"within": "2h"},
            "certificate": {"lifetime": "1h"},
            "nameReuse": "AfterMachine",
            "renewals": {"unknownCredential": "Warn"},
            "autoApproveBindings": "Alarm",
            "nodeLabels": "Enabled",
            "serving": {"builtin": "Approve"},
            "minimumVersion": "v1",
        }.items()
    },
    "signedBy in mode Record": (
        {"pcrs": {"signedBy": [{"keys": [VENDOR_KEY], "pcrs": {"sha256": [11]}}]}},
        "spec.pcrs.signedBy: must be absent in mode Record",
    ),
    "signedBy is empty": (
        {"pcrs": enforced(signedBy=[])},
        "spec.pcrs.signedBy: must be a non-empty list",
    ),
    "signedBy without PCR 4 or 7": (
        signed_by(selection=[0]),
        (
            "spec.pcrs.signedBy[0].pcrs.sha256: needs PCR 4 or 7 here or in selection:"
            " root can extend the others"
        ),
    ),
    "signedBy without PCR 4 or 7 of its bank": (
        signed_by(pcrs={"sha384": [11]}),
        (
            "spec.pcrs.signedBy[0].pcrs.sha384: needs PCR 4 or 7 here or in selection:"
            " root can extend the others"
        ),
    ),
    "signedBy with a selected PCR": (
        signed_by(pcrs={"sha256": [7, 11]}),
        (
            "spec.pcrs.signedBy[0].pcrs.sha256: must not have PCRs of selection:"
            " their values are in allowed"
        ),
    ),
    "signedBy without a bank": (
        signed_by(pcrs={}),
        "spec.pcrs.signedBy[0].pcrs: must have PCRs of a bank (sha256, sha384, sha512)",
    ),
    "signedBy with a certificate": (
        signed_by(keys=["-----BEGIN CERTIFICATE-----"]),
        "spec.pcrs.signedBy[0].keys[0]: must be a public key as PEM: RSA, P-256 or P-384",
    ),
    "signedBy with an unknown key": (
        signed_by(key="x"),
        "spec.pcrs.signedBy[0].key: unknown key",
    ),
    "revoked digest of another size": (
        signed_by(revoked=["cc" * 48]),
        "spec.pcrs.signedBy[0].revoked[0]: must be a digest in hex, of the size of the bank",
    ),
    "unknown version": ({"minimumVersion": "v2"}, "spec.minimumVersion: must be one of v1"),
    "no bootstrap groups": (
        {"bootstrapGroups": []},
        "spec.bootstrapGroups: must be a non-empty list",
    ),
    "bootstrap group twice": (
        {"bootstrapGroups": ["a", "a"]},
        "spec.bootstrapGroups[1]: must not repeat a value",
    ),
    "bootstrap groups are a string": (
        {"bootstrapGroups": "joiners"},
        "spec.bootstrapGroups: must be a non-empty list",
    ),
    "bootstrap group is a number": (
        {"bootstrapGroups": ["a", 1]},
        "spec.bootstrapGroups[1]: must be a non-empty string",
    ),
    "bootstrap group is empty": (
        {"bootstrapGroups": ["a", ""]},
        "spec.bootstrapGroups[1]: must be a non-empty string",
    ),
    "unknown trust": (
        {"endorsementKey": {"trust": "Any"}},
        f"spec.endorsementKey.trust: must be one of {', '.join(t.value for t in TrustMode)}",
    ),
    "Certified without authorities": (
        {"endorsementKey": {"trust": "Certified"}},
        "spec.endorsementKey.certificateAuthorities: is required with trust Certified",
    ),
    "authorities without Certified": (
        {"endorsementKey": {"certificateAuthorities": ["/a"]}},
        "spec.endorsementKey.certificateAuthorities: must be absent with trust Registered",
    ),
    **{
        f"platform without {key}": (
            {"endorsementKey": {"platform": {k: v for k, v in PLATFORM.items() if k != key}}},
            f"spec.endorsementKey.platform.{key}: {problem}",
        )
        for key, problem in {
            "type": "must be a non-empty string",
            "credentialsFile": "must be a non-empty string",
            "locations": "is required",
        }.items()
    },
    **{
        f"platform with trust {trust}": (
            {"endorsementKey": {"trust": trust, "platform": PLATFORM, **rules}},
            f"spec.endorsementKey.platform: must be absent with trust {trust}",
        )
        for trust, rules in {
            "FirstUse": {},
            "Certified": {"certificateAuthorities": ["/a"]},
        }.items()
    },
    "platform without allowed locations": (
        {"endorsementKey": {"platform": {**PLATFORM, "locations": []}}},
        "spec.endorsementKey.platform.locations: must be a non-empty list",
    ),
    "platform with a relative path": (
        {"endorsementKey": {"platform": {**PLATFORM, "credentialsFile": "aws"}}},
        "spec.endorsementKey.platform.credentialsFile: must be an absolute path",
    ),
    "platform with an unknown key": (
        {"endorsementKey": {"platform": {**PLATFORM, "region": "eu-west-1"}}},
        "spec.endorsementKey.platform.region: unknown key",
    ),
    **{
        f"authorities of attestation keys with trust {trust}": (
            {
                "endorsementKey": {"trust": trust, **rules},
                "attestationKey": {"certificateAuthorities": ["/a"]},
            },
            f"spec.attestationKey.certificateAuthorities: must be absent with trust {trust}",
        )
        for trust, rules in {
            "FirstUse": {},
            "Certified": {"certificateAuthorities": ["/a"]},
            "RegisteredAndCertified": {"certificateAuthorities": ["/a"]},
        }.items()
    },
    "authorities of attestation keys with PCR 6 in the selection": (
        {
            "attestationKey": {"certificateAuthorities": ["/a"]},
            "pcrs": {"mode": "Enforce", "allowed": _FIRST_EIGHT},
        },
        "spec.pcrs.selection: must not have PCR 6: it names the machine, and is quoted besides",
    ),
    "names in certificates with trust RegisteredAndCertified": (
        {
            "endorsementKey": {
                "trust": "RegisteredAndCertified",
                "certificateAuthorities": ["/a"],
                "certificateNames": {"gce": {"projects": ["p"]}},
            }
        },
        "spec.endorsementKey.certificateNames: must be absent with trust RegisteredAndCertified",
    ),
    **{
        f"names in certificates: {name}": (
            {
                "endorsementKey": {
                    "trust": "Certified",
                    "certificateAuthorities": ["/a"],
                    "certificateNames": names,
                }
            },
            f"spec.endorsementKey.certificateNames{problem}",
        )
        for name, (names, problem) in {
            "none": ({}, ": must have gce or domainUUID"),
            "an unknown platform": ({"gce": {"projects": ["p"]}, "aws": {}}, ".aws: unknown key"),
            "only unnamed ones": ({"unnamed": "Accept"}, ": must have gce or domainUUID"),
            "unknown rule for unnamed ones": (
                {"gce": {"projects": ["p"]}, "unnamed": "Deny"},
                ".unnamed: must be one of Wait, Accept",
            ),
            "no projects": ({"gce": {}}, ".gce.projects: is required"),
            "an empty list": (
                {"domainUUID": {"schemes": []}},
                ".domainUUID.schemes: must be a non-empty list",
            ),
            "an unknown key": (
                {"domainUUID": {"schemes": ["openstack"], "issuer": "x"}},
                ".domainUUID.issuer: unknown key",
            ),
        }.items()
    },
    "revocation lists without Certified": (
        {"endorsementKey": {"trust": "FirstUse", "certificateRevocationLists": ["/a"]}},
        "spec.endorsementKey.certificateRevocationLists: must be absent with trust FirstUse",
    ),
    "a certificate rule without need": (
        {"endorsementKey": {"allowCertificatesWithoutUsage": True}},
        "spec.endorsementKey.allowCertificatesWithoutUsage: must be absent with trust Registered",
    ),
    "unknown scheme": (
        {"attestationKey": {"schemes": ["rsassa-1024-sha1"]}},
        "spec.attestationKey.schemes: has unknown schemes: rsassa-1024-sha1",
    ),
    "no schemes": (
        {"attestationKey": {"schemes": []}},
        "spec.attestationKey.schemes: must be a non-empty list",
    ),
    "SHA-1 bank": (
        {"pcrs": {"selection": {"sha256": [0], "sha1": [0]}}},
        "spec.pcrs.selection.sha1: unknown key",
    ),
    "no selection": (
        {"pcrs": {"selection": {}}},
        "spec.pcrs.selection: must select PCRs of a bank (sha256, sha384, sha512)",
    ),
    "no PCR": (
        {"pcrs": {"selection": {"sha256": []}}},
        "spec.pcrs.selection.sha256: must be a non-empty list",
    ),
    "PCRs are a number": (
        {"pcrs": {"selection": {"sha256": 7}}},
        "spec.pcrs.selection.sha256: must be a non-empty list",
    ),
    "PCRs are a mapping": (
        {"pcrs": {"selection": {"sha256": {7: A}}}},
        "spec.pcrs.selection.sha256: must be a non-empty list",
    ),
    "PCR 24": (
        {"pcrs": {"selection": {"sha256": [24]}}},
        "spec.pcrs.selection.sha256: must hold PCR numbers from 0 to 23",
    ),
    "PCR -1": (
        {"pcrs": {"selection": {"sha256": [-1]}}},
        "spec.pcrs.selection.sha256: must hold PCR numbers from 0 to 23",
    ),
    "PCR true": (
        {"pcrs": {"selection": {"sha256": [True]}}},
        "spec.pcrs.selection.sha256: must hold PCR numbers from 0 to 23",
    ),
    "PCR twice": (
        {"pcrs": {"selection": {"sha256": [7, 7]}}},
        "spec.pcrs.selection.sha256: must not repeat a PCR",
    ),
    "enforced without values": (
        {"pcrs": {"mode": "Enforce"}},
        "spec.pcrs.allowed: is required in mode Enforce",
    ),
    "warning without values": (
        {"pcrs": {"mode": "Warn"}},
        "spec.pcrs.allowed: is required in mode Warn",
    ),
    "a selected PCR without values": (
        {"pcrs": enforced(selection={"sha256": [4, 7]})},
        "spec.pcrs.allowed.sha256.4: is required: the PCR is selected",
    ),
    "a PCR with an empty list": (
        {"pcrs": enforced(allowed={"sha256": {"7": []}})},
        "spec.pcrs.allowed.sha256.7: must be a non-empty list",
    ),
    "a PCR that is not selected": (
        {"pcrs": enforced(allowed={"sha256": {"7": [A], "4": [A]}})},
        "spec.pcrs.allowed.sha256.4: unknown key",
    ),
    "a bank that is not selected": (
        {"pcrs": enforced(allowed={"sha256": {"7": [A]}, "sha384": {"7": ["aa" * 48]}})},
        "spec.pcrs.allowed.sha384: unknown key",
    ),
    "a digest of another size": (
        {"pcrs": enforced(allowed={"sha256": {"7": ["aa" * 20]}})},
        "spec.pcrs.allowed.sha256.7[0]: must be a digest in hex, of the size of the bank",
    ),
    "not hex": (
        {"pcrs": enforced(allowed={"sha256": {"7": ["zz" * 32]}})},
        "spec.pcrs.allowed.sha256.7[0]: must be a digest in hex, of the size of the bank",
    ),
    "hex with spaces": (
        {"pcrs": enforced(allowed={"sha256": {"7": ["aa " * 32]}})},
        "spec.pcrs.allowed.sha256.7[0]: must be a digest in hex, of the size of the bank",
    ),
    "values in mode Record": (
        {"pcrs": enforced(mode="Record")},
        "spec.pcrs.allowed: must be absent in mode Record",
    ),
    "variants in mode Record": (
        {
            "pcrs": {
                "selection": {"sha256": [7]},
                "variants": [
                    {
                        "machineSelector": {"matchLabels": {"a": "b"}},
                        "allowed": {"sha256": {"7": [A]}},
                    }
                ],
            }
        },
        "spec.pcrs.variants: must be absent in mode Record",
    ),
    "until in mode Record": (
        {"pcrs": {"until": [{"value": A, "time": "2026-12-31T00:00:00Z"}]}},
        "spec.pcrs.until: must be absent in mode Record",
    ),
    "until is empty": (
        {"pcrs": enforced(until=[])},
        "spec.pcrs.until: must be a non-empty list",
    ),
    "until of half a digest": (
        {"pcrs": enforced(until=[{"value": A[:32], "time": "2026-12-31T00:00:00Z"}])},
        "spec.pcrs.until[0].value: must be a digest in hex",
    ),
    "until twice": (
        {"pcrs": enforced(until=[{"value": A, "time": "2026-12-31T00:00:00Z"}] * 2)},
        "spec.pcrs.until[1].value: must not be repeated",
    ),
    "until some day": (
        {"pcrs": enforced(until=[{"value": A, "time": "2026-12-31"}])},
        "spec.pcrs.until[0].time: must be a time like 2026-12-31T00:00:00Z",
    ),
    "until without a time": (
        {"pcrs": enforced(until=[{"value": A}])},
        "spec.pcrs.until[0].time: must be a time like 2026-12-31T00:00:00Z",
    ),
    "no variants": (
        {"pcrs": enforced(variants=[])},
        "spec.pcrs.variants: must be a non-empty list",
    ),
    "variants are a number": (
        {"pcrs": enforced(variants=1)},
        "spec.pcrs.variants: must be a non-empty list",
    ),
    "a variant without values": (
        {"pcrs": enforced(variants=[{"machineSelector": {"matchLabels": {"a": "b"}}}])},
        "spec.pcrs.variants[0].allowed: is required",
    ),
    "event log without a rule": (
        {"eventLog": {"secureBoot": False}},
        "spec.eventLog: must have a rule",
    ),
    "event log of a PCR that is not quoted": (
        {"pcrs": {"selection": {"sha256": [0]}}, "eventLog": {"secureBoot": True}},
        "spec.eventLog: needs PCR 7 in pcrs.selection",
    ),
    "platform keys of a PCR that is not quoted": (
        {"pcrs": {"selection": {"sha256": [4]}}, "eventLog": {"platformKeys": [A]}},
        "spec.eventLog: needs PCR 7 in pcrs.selection",
    ),
    "signature databases of a PCR that is not quoted": (
        {"pcrs": {"selection": {"sha256": [4]}}, "eventLog": {"signatureDatabases": [A]}},
        "spec.eventLog: needs PCR 7 in pcrs.selection",
    ),
    "boot loaders of a PCR that is not quoted": (
        {"pcrs": {"selection": {"sha256": [7]}}, "eventLog": {"bootLoaders": [A]}},
        "spec.eventLog: needs PCR 4 in pcrs.selection",
    ),
    "machineName is not a boolean": (
        {"nodeNames": {"machineName": "yes"}},
        "spec.nodeNames.machineName: must be true or false",
    ),
    "first join without a limit": ({"firstJoin": {}}, "spec.firstJoin.within: is required"),
    "first join within seconds": (
        {"firstJoin": {"within": "59s"}},
        "spec.firstJoin.within: must be at least 60s",
    ),
    "lifetime without unit": (
        {"certificate": {"lifetime": "168"}},
        "spec.certificate.lifetime: must be a duration like 168h or 1h30m",
    ),
    "lifetime is a number": (
        {"certificate": {"lifetime": 168}},
        "spec.certificate.lifetime: must be a duration like 168h or 1h30m",
    ),
    "lifetime is empty": (
        {"certificate": {"lifetime": ""}},
        "spec.certificate.lifetime: must be a duration like 168h or 1h30m",
    ),
    "lifetime is under an hour": (
        {"certificate": {"lifetime": "59m59s"}},
        "spec.certificate.lifetime: must be at least 3600s",
    ),
    "shared authority is not a boolean": (
        {"certificate": {"allowSharedAuthority": "yes"}},
        "spec.certificate.allowSharedAuthority: must be true or false",
    ),
    "lifetime is too long": (
        {"certificate": {"lifetime": "9999999h"}},
        "spec.certificate.lifetime: must be a duration like 168h or 1h30m",
    ),
    "unknown reuse": (
        {"nameReuse": "Never"},
        "spec.nameReuse: must be one of AfterMachine, AfterCertificate",
    ),
    "unknown approval": (
        {"approval": "Off"},
        "spec.approval: must be one of Enabled, Disabled",
    ),
    "unknown reaction to an unknown certificate": (
        {"renewals": {"unknownCredential": "Ignore"}},
        "spec.renewals.unknownCredential: must be one of Warn, Deny",
    ),
    "tainting is not a boolean": (
        {"renewals": {"taintUnattested": "NoSchedule"}},
        "spec.renewals.taintUnattested: must be true or false",
    ),
    "unknown rule for renewals": (
        {"renewals": {"credential": "Deny"}},
        "spec.renewals.credential: unknown key",
    ),
    "unknown access review": (
        {"accessReview": True},
        "spec.accessReview: must be one of Skip, Require",
    ),
    "fallback with builtin Ignore": (
        {"serving": {"builtin": "Ignore", "nodeRefFallback": True}},
        "spec.serving.nodeRefFallback: must be absent with builtin Ignore",
    ),
    "a cluster that is a number": (
        {"clusterRef": {"namespace": "n", "name": 1}},
        "spec.clusterRef.name: must be a non-empty string",
    ),
    "a cluster and a selector": (
        {
            "clusterRef": {"namespace": "n", "name": "c"},
            "clusterSelector": {"namespaces": ["n"]},
        },
        "spec.clusterSelector: must be absent with clusterRef",
    ),
    "labels of Clusters in any namespace": (
        {"clusterSelector": {"matchLabels": {"stage": "test"}}},
        "spec.clusterSelector.namespaces: is required",
    ),
    "a selector without a namespace": (
        {"clusterSelector": {"namespaces": []}},
        "spec.clusterSelector.namespaces: must be a non-empty list",
    ),
    "a selector with an empty namespace": (
        {"clusterSelector": {"namespaces": [""]}},
        "spec.clusterSelector.namespaces[0]: must be a non-empty string",
    ),
    "a selector without labels": (
        {"clusterSelector": {"namespaces": ["n"], "matchLabels": {}}},
        "spec.clusterSelector.matchLabels: must be a non-empty mapping",
    ),
    "a cluster without a namespace": (
        {"clusterRef": {"name": "blue"}},
        "spec.clusterRef.namespace: must be a non-empty string",
    ),
}

_VARIANT = {"machineSelector": {"matchLabels": {"a": "b"}}, "allowed": {"sha256": {"7": [A]}}}
GOOD_SPECS: dict[str, dict[str, object]] = {
    "the defaults": {},
    "every setting": EVERY_SETTING,
    "one cluster": {"clusterRef": {"namespace": "n", "name": "c"}},
    "a namespace": {"clusterSelector": {"namespaces": ["n"]}},
    "enforced": {"pcrs": enforced()},
    "warning": {"pcrs": enforced(mode="Warn")},
    "signed images": signed_by(),
    "signed loader and image": signed_by(selection=[0], pcrs={"sha256": [4, 11]}),
    "signed images for the default selection": {
        "pcrs": {
            "mode": "Enforce",
            "allowed": _FIRST_EIGHT,
            "signedBy": [{"keys": [VENDOR_KEY], "pcrs": {"sha256": [11]}}],
        }
    },
    "enforced with variants alone": {
        "pcrs": {"selection": {"sha256": [7]}, "mode": "Enforce", "variants": [_VARIANT]}
    },
    "enforced for the default selection": {"pcrs": {"mode": "Enforce", "allowed": _FIRST_EIGHT}},
    "variants for the default selection": {
        "pcrs": {"mode": "Enforce", "variants": [{**_VARIANT, "allowed": _FIRST_EIGHT}]}
    },
    "two banks": {
        "pcrs": {
            "selection": {"sha384": [0], "sha512": [23]},
            "mode": "Enforce",
            "allowed": {"sha384": {"0": ["ab" * 48]}, "sha512": {"23": ["AB" * 64]}},
        }
    },
    "event log without pcrs": {"eventLog": {"secureBoot": True, "bootLoaders": [A]}},
    "event log of another bank": {
        "pcrs": {"selection": {"sha512": [4]}},
        "eventLog": {"bootLoaders": ["cd" * 64]},
    },
    "an hour": {"certificate": {"lifetime": "3600s"}},
    "a long time": {"certificate": {"lifetime": "999999h999999m999999s"}},
    "first use": {"endorsementKey": {"trust": "FirstUse"}},
    "certified": {"endorsementKey": {"trust": "Certified", "certificateAuthorities": ["/a"]}},
    "certified attestation keys": {
        "attestationKey": {"certificateAuthorities": ["/a"]},
        "pcrs": enforced(),
    },
    "certified attestation keys in mode Record": {
        "attestationKey": {"certificateAuthorities": ["/a"]},
        "pcrs": {"selection": {"sha256": [6, 7]}},
    },
    "certified by name": {
        "endorsementKey": {
            "trust": "Certified",
            "certificateAuthorities": ["/a"],
            "certificateNames": {
                "gce": {"projects": ["team-a"]},
                "domainUUID": {"schemes": ["openstack", "kubevirt"]},
                "unnamed": "Accept",
            },
        }
    },
    "serving only": {
        "mode": "ServingOnly",
        "approval": "Disabled",
        "accessReview": "Require",
        "nodeNames": {"machineName": True},
    },
    "serving ignored": {"serving": {"builtin": "Ignore", "nodeRefFallback": False}},
}
