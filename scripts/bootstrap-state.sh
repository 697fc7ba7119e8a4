#!/bin/sh
# Makes what a stack's state needs in its AWS account, once: a KMS key, a versioned bucket, and the stack in it.
# Running it again changes nothing that is as it should be. docs/state.md says why each part is there.
#
#   scripts/bootstrap-state.sh <stack> <region>
#
# Needs the AWS CLI and pulumi on PATH, and credentials that may administer S3 and KMS in the stack's account.
set -eu

usage() {
    echo "usage: scripts/bootstrap-state.sh <stack> <region>" >&2
    exit 2
}
[ $# -eq 2 ] || usage
stack=$1
region=$2
# Both become parts of names and URLs.
case $stack in '' | *[!a-z0-9-]* | -* | *-) usage ;; esac
case $region in [a-z][a-z]*-*-[0-9]) ;; *) usage ;; esac

project=$(cd "$(dirname "$0")/.." && pwd)
settings=$project/Pulumi.$stack.yaml
if [ ! -e "$settings" ]; then
    echo "error: there is no stack $stack: Pulumi.$stack.yaml does not exist" >&2
    exit 1
fi

export AWS_REGION="$region" AWS_PAGER=""
account=$(aws sts get-caller-identity --query Account --output text)
partition=$(aws sts get-caller-identity --query Arn --output text | cut -d: -f2)
bucket=triton-fleet-state-$stack-$account-$region
alias=alias/triton-fleet-state-$stack

# One key for the stack's secrets and for the objects of its bucket.
key=$(aws kms list-aliases --query "Aliases[?AliasName=='$alias'].TargetKeyId" --output text)
if [ -z "$key" ] || [ "$key" = None ]; then
    key=$(aws kms create-key --description "Pulumi state and secrets of triton-fleet, stack $stack" \
        --tags "TagKey=triton-fleet.io/stack,TagValue=$stack" --query KeyMetadata.KeyId --output text)
    aws kms create-alias --alias-name "$alias" --target-key-id "$key"
    echo "made: key $alias"
fi
aws kms enable-key-rotation --key-id "$key"

if ! aws s3api head-bucket --bucket "$bucket" --expected-bucket-owner "$account" >/dev/null 2>&1; then
    # us-east-1 is the one region that may not be named.
    if [ "$region" = us-east-1 ]; then
        aws s3api create-bucket --bucket "$bucket" >/dev/null
    else
        aws s3api create-bucket --bucket "$bucket" \
            --create-bucket-configuration "LocationConstraint=$region" >/dev/null
    fi
    echo "made: bucket $bucket"
fi
aws s3api put-public-access-block --bucket "$bucket" --public-access-block-configuration \
    BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true
aws s3api put-bucket-ownership-controls --bucket "$bucket" \
    --ownership-controls "Rules=[{ObjectOwnership=BucketOwnerEnforced}]"
aws s3api put-bucket-versioning --bucket "$bucket" --versioning-configuration Status=Enabled
aws s3api put-bucket-encryption --bucket "$bucket" --server-side-encryption-configuration \
    "{\"Rules\":[{\"ApplyServerSideEncryptionByDefault\":{\"SSEAlgorithm\":\"aws:kms\",\"KMSMasterKeyID\":\"$key\"},\"BucketKeyEnabled\":true}]}"
aws s3api put-bucket-lifecycle-configuration --bucket "$bucket" --lifecycle-configuration \
    '{"Rules":[{"ID":"old-versions","Status":"Enabled","Filter":{},"NoncurrentVersionExpiration":{"NoncurrentDays":365,"NewerNoncurrentVersions":20},"AbortIncompleteMultipartUpload":{"DaysAfterInitiation":7}}]}'
aws s3api put-bucket-policy --bucket "$bucket" --policy \
    "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Sid\":\"TlsOnly\",\"Effect\":\"Deny\",\"Principal\":\"*\",\"Action\":\"s3:*\",\"Resource\":[\"arn:$partition:s3:::$bucket\",\"arn:$partition:s3:::$bucket/*\"],\"Condition\":{\"Bool\":{\"aws:SecureTransport\":\"false\"}}}]}"

export PULUMI_BACKEND_URL="s3://$bucket?region=$region"
cd "$project"
if ! pulumi stack select "$stack" --non-interactive >/dev/null 2>&1; then
    pulumi stack init "$stack" --non-interactive --secrets-provider="awskms://$alias?region=$region"
    echo "made: stack $stack; commit Pulumi.$stack.yaml, which now names its key"
fi
cat <<END
PULUMI_BACKEND_URL=$PULUMI_BACKEND_URL
key: $key ($alias)
END
