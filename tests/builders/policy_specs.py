"""The `spec` of policies: one with every setting, and one for each problem."""

from signer.policy import TrustMode

A, B = "aa" * 32, "bb" * 32

PLATFORM: dict[str, object] = {
    "type": "aws",
    "credentialsFile": "/etc/signer/aws/team-a",
    "locations": ["eu-central-1", "eu-west-1"],
}

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
    "renewals": {"unknownCredential": "Deny", "publishCredentials": True},
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
    "unknown version": ({"minimumVersion": "v2"}, "spec.minimumVersion: must be one of v1"),
    "no bootstrap groups": (
        {"bootstrapGroups": []},
        "spec.bootstrapGroups: must be a non-empty list",
    ),
    "bootstrap group twice": (
        {"bootstrapGroups": ["a", "a"]},
        "spec.bootstrapGroups: must not repeat a value",
    ),
    "bootstrap groups are a string": (
        {"bootstrapGroups": "joiners"},
        "spec.bootstrapGroups: must be a non-empty list",
    ),
    "bootstrap group is a number": (
        {"bootstrapGroups": ["a", 1]},
        "spec.bootstrapGroups: must hold only non-empty strings",
    ),
    "bootstrap group is empty": (
        {"bootstrapGroups": ["a", ""]},
        "spec.bootstrapGroups: must hold only non-empty strings",
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
        "spec.pcrs.allowed.sha256.7: must hold digests in hex, of the size of the bank",
    ),
    "not hex": (
        {"pcrs": enforced(allowed={"sha256": {"7": ["zz" * 32]}})},
        "spec.pcrs.allowed.sha256.7: must hold digests in hex, of the size of the bank",
    ),
    "hex with spaces": (
        {"pcrs": enforced(allowed={"sha256": {"7": ["aa " * 32]}})},
        "spec.pcrs.allowed.sha256.7: must hold digests in hex, of the size of the bank",
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
        "spec.pcrs.variants[0].allowed: is required in mode Enforce",
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
    "publishing is not a boolean": (
        {"renewals": {"publishCredentials": "yes"}},
        "spec.renewals.publishCredentials: must be true or false",
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
        "spec.clusterSelector.namespaces: must hold only non-empty strings",
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
_FIRST_EIGHT = {"sha256": {str(index): [A] for index in range(8)}}

GOOD_SPECS: dict[str, dict[str, object]] = {
    "the defaults": {},
    "every setting": EVERY_SETTING,
    "one cluster": {"clusterRef": {"namespace": "n", "name": "c"}},
    "a namespace": {"clusterSelector": {"namespaces": ["n"]}},
    "enforced": {"pcrs": enforced()},
    "warning": {"pcrs": enforced(mode="Warn")},
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
    "serving only": {
        "mode": "ServingOnly",
        "approval": "Disabled",
        "accessReview": "Require",
        "nodeNames": {"machineName": True},
    },
    "serving ignored": {"serving": {"builtin": "Ignore", "nodeRefFallback": False}},
}
