"""What scripts/bootstrap-state.sh asks of AWS and Pulumi; both are scripts of the test's that remember their words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

ACCOUNT = "123456789012"
KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
BUCKET = f"triton-fleet-state-prod-{ACCOUNT}-eu-west-1"
ALIAS = "alias/triton-fleet-state-prod"
AWS = f"""#!/bin/sh
printf '%s\\n' "$AWS_REGION" "$@" -- >>"$LOG"
case "$1 $2" in
"sts get-caller-identity")
    case "$*" in
    *Arn*) echo arn:${{PARTITION:-aws}}:iam::{ACCOUNT}:user/a ;;
    *) echo {ACCOUNT} ;;
    esac
    ;;
"kms list-aliases") echo "$FOUND_KEY" ;;
"kms create-key") echo {KEY} ;;
"s3api head-bucket") test -n "$FOUND_BUCKET" || exit 254 ;;
esac
[ "$1 $2" != "$FAILS" ]
"""
PULUMI = """#!/bin/sh
printf '%s\\n' "$PULUMI_BACKEND_URL" "$@" -- >>"$LOG.pulumi"
[ "$1 $2" = "stack init" ] || test -n "$FOUND_STACK"
"""


class Bench:
    """A checkout with the script and one stack, and what was asked for."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.checkout = folder / "checkout"
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(project / "scripts" / "bootstrap-state.sh", self.checkout / "scripts")
        (self.checkout / "Pulumi.prod.yaml").touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name, text in (("aws", AWS), ("pulumi", PULUMI)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.log = folder / "log"
        self.log.touch()

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", str(self.checkout / "scripts" / "bootstrap-state.sh"), *arguments],
            env={"PATH": f"{self.bin}:{os.defpath}", "LOG": str(self.log), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def aws(self) -> list[list[str]]:
        return _calls(self.log.read_text())

    @property
    def pulumi(self) -> list[list[str]]:
        return _calls(self.log.with_name("log.pulumi").read_text())

    def document(self, command: str, option: str) -> object:
        (call,) = [one for one in self.aws if one[2] == command]
        return json.loads(call[call.index(option) + 1])


def _calls(log: str) -> list[list[str]]:
    return [call.strip("\n").split("\n") for call in log.split("\n--\n")[:-1]]


@pytest.fixture
def bench(tmp_path: Path, project: Path) -> Bench:
    return Bench(tmp_path, project)


LOOKS = ["sts get-caller-identity", "sts get-caller-identity", "kms list-aliases"]
SETTLES = [
    "s3api put-public-access-block",
    "s3api put-bucket-ownership-controls",
    "s3api put-bucket-versioning",
    "s3api put-bucket-encryption",
    "s3api put-bucket-lifecycle-configuration",
    "s3api put-bucket-policy",
]
MAKES_KEY = ["kms create-key", "kms create-alias"]
ROTATES = ["kms enable-key-rotation"]
SEEKS_BUCKET = ["s3api head-bucket"]
THERE = {"FOUND_KEY": KEY, "FOUND_BUCKET": "1", "FOUND_STACK": "1"}
URL = f"s3://{BUCKET}?region=eu-west-1"


def test_everything_is_made_the_first_time(bench: Bench) -> None:
    done = bench.run("prod", "eu-west-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"made: key {ALIAS}\nmade: bucket {BUCKET}\n"
        "made: stack prod; commit Pulumi.prod.yaml, which now names its key\n"
        f"PULUMI_BACKEND_URL={URL}\nkey: {KEY} ({ALIAS})\n"
    )
    assert [" ".join(call[1:3]) for call in bench.aws] == [
        *LOOKS, *MAKES_KEY, *ROTATES, *SEEKS_BUCKET, "s3api create-bucket", *SETTLES,
    ]  # fmt: skip
    assert {call[0] for call in bench.aws} == {"eu-west-1"}
    by_name = {call[2]: call[3:] for call in bench.aws}
    assert by_name["create-alias"] == ["--alias-name", ALIAS, "--target-key-id", KEY]
    assert by_name["enable-key-rotation"] == ["--key-id", KEY]
    assert by_name["head-bucket"] == ["--bucket", BUCKET, "--expected-bucket-owner", ACCOUNT]
    assert by_name["create-bucket"] == [
        *("--bucket", BUCKET),
        *("--create-bucket-configuration", "LocationConstraint=eu-west-1"),
    ]
    assert by_name["put-bucket-versioning"] == ["--bucket", BUCKET, "--versioning-configuration", "Status=Enabled"]
    assert by_name["put-public-access-block"] == [
        *("--bucket", BUCKET, "--public-access-block-configuration"),
        "BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true",
    ]
    assert by_name["put-bucket-ownership-controls"] == [
        *("--bucket", BUCKET, "--ownership-controls"),
        "Rules=[{ObjectOwnership=BucketOwnerEnforced}]",
    ]
    assert bench.pulumi == [
        [URL, "stack", "select", "prod", "--non-interactive"],
        [URL, "stack", "init", "prod", "--non-interactive", f"--secrets-provider=awskms://{ALIAS}?region=eu-west-1"],
    ]


def test_what_is_kept_is_encrypted_with_the_stacks_key_for_a_year_and_over_tls(bench: Bench) -> None:
    bench.run("prod", "eu-west-1", PARTITION="aws-us-gov")
    assert bench.document("put-bucket-encryption", "--server-side-encryption-configuration") == {
        "Rules": [
            {
                "ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY},
                "BucketKeyEnabled": True,
            }
        ]
    }
    assert bench.document("put-bucket-lifecycle-configuration", "--lifecycle-configuration") == {
        "Rules": [
            {
                "ID": "old-versions",
                "Status": "Enabled",
                "Filter": {},
                "NoncurrentVersionExpiration": {"NoncurrentDays": 365, "NewerNoncurrentVersions": 20},
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
            }
        ]
    }
    assert bench.document("put-bucket-policy", "--policy") == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [f"arn:aws-us-gov:s3:::{BUCKET}", f"arn:aws-us-gov:s3:::{BUCKET}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


def test_a_second_run_makes_nothing_and_puts_settings_right(bench: Bench) -> None:
    done = bench.run("prod", "eu-west-1", **THERE)
    assert (done.returncode, done.stdout) == (0, f"PULUMI_BACKEND_URL={URL}\nkey: {KEY} ({ALIAS})\n")
    assert [" ".join(call[1:3]) for call in bench.aws] == [*LOOKS, *ROTATES, *SEEKS_BUCKET, *SETTLES]
    assert bench.pulumi == [[URL, "stack", "select", "prod", "--non-interactive"]]


def test_the_alias_that_is_not_there_is_told_as_none(bench: Bench) -> None:
    bench.run("prod", "eu-west-1", FOUND_KEY="None")
    assert [" ".join(call[1:3]) for call in bench.aws][3:5] == MAKES_KEY


def test_the_first_region_may_not_be_named(bench: Bench) -> None:
    bench.run("prod", "us-east-1")
    (call,) = [one for one in bench.aws if one[2] == "create-bucket"]
    assert call[3:] == ["--bucket", f"triton-fleet-state-prod-{ACCOUNT}-us-east-1"]


@pytest.mark.parametrize(
    "fails", ["sts get-caller-identity", "kms create-alias", "s3api create-bucket", "s3api put-bucket-policy"]
)
def test_a_refusal_of_aws_ends_it_before_a_stack_is_made(bench: Bench, fails: str) -> None:
    assert bench.run("prod", "eu-west-1", FAILS=fails).returncode == 1
    assert " ".join(bench.aws[-1][1:3]) == fails
    assert not bench.log.with_name("log.pulumi").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("prod",),
        ("prod", "eu-west-1", "more"),
        ("", "eu-west-1"),
        ("../prod", "eu-west-1"),
        ("Prod", "eu-west-1"),
        ("prod", "europe"),
        ("prod", "eu-west-1?x=1"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_asked(bench: Bench, arguments: tuple[str, ...]) -> None:
    done = bench.run(*arguments)
    assert (done.returncode, done.stderr) == (2, "usage: scripts/bootstrap-state.sh <stack> <region>\n")
    assert bench.aws == []


def test_a_stack_that_is_not_there_is_refused(bench: Bench) -> None:
    done = bench.run("staging", "eu-west-1")
    assert (done.returncode, done.stderr) == (
        1,
        "error: there is no stack staging: Pulumi.staging.yaml does not exist\n",
    )
    assert bench.aws == []
