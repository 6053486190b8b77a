"""The provenance statement names what was built and from what."""

from tests.release.provenance import Build, make_statement

BUILD = Build(
    commit="c" * 40,
    source_date_epoch=1,
    targets=("wheel",),
    image="registry.example/signer:1.2.3",
    locks={"requirements/node.txt": "a" * 64},
    builder_id="urn:x-node-attestation:local",
)


def test_statement_has_the_fields_of_slsa_provenance() -> None:
    assert make_statement({"a.whl": "b" * 64}, BUILD) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "a.whl", "digest": {"sha256": "b" * 64}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:x-node-attestation:make-dist:v1",
                "externalParameters": {
                    "targets": ["wheel"],
                    "IMAGE": "registry.example/signer:1.2.3",
                },
                "internalParameters": {"SOURCE_DATE_EPOCH": 1},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": "c" * 40}},
                    {"name": "requirements/node.txt", "digest": {"sha256": "a" * 64}},
                ],
            },
            "runDetails": {"builder": {"id": "urn:x-node-attestation:local"}},
        },
    }
