#!/bin/sh
# Starts the server in the image. The arguments are flags of the server. They come last, and so
# override the flags below.
set -eu

# SageMaker starts the image with the argument "serve" alone, and may set no variable. It then calls
# port 8080.
if [ "$*" = serve ]; then
  export SAGEMAKER_BIND_TO_PORT="${SAGEMAKER_BIND_TO_PORT:-8080}"
fi
if [ "${1:-}" = serve ]; then
  shift
fi

# The defaults of TensorFlow Serving's image.
name="${MODEL_NAME:-model}"
base="${MODEL_BASE_PATH:-/models}"
base="${base%/}"
# The variables of Vertex AI and SageMaker, from which the server takes the model and the port
# (docs/operations.md). With a variable of Vertex AI, those of SageMaker do not count.
vertex="${AIP_STORAGE_URI:-}${AIP_PREDICT_ROUTE:-}${AIP_HEALTH_ROUTE:-}${AIP_HTTP_PORT:-}"
sagemaker="${SAGEMAKER_BIND_TO_PORT:-}${SAGEMAKER_SAFE_PORT_RANGE:-}${SAGEMAKER_MULTI_MODEL:-}"
if [ -n "${vertex}" ]; then
  sagemaker=""
fi

flags_name_model=""
sample=""
for argument in "$@"; do
  case "${argument}" in
    --model_base_path | --model_base_path=* | --model_config_file | --model_config_file=*)
      flags_name_model=true
      ;;
    --sample) sample=true ;;
  esac
done

if [ -n "${flags_name_model}" ]; then
  set -- --model_name="${name}" "$@"
elif [ "${base}" != /models ] || [ -d "${base}/${name}" ]; then
  set -- --model_name="${name}" --model_base_path="${base}/${name}" "$@"
elif [ -n "${AIP_STORAGE_URI:-}${sagemaker}" ]; then
  set -- --model_name="${name}" "$@"
elif [ -n "${MODEL_NAME:-}" ]; then
  set -- --model_name="${name}" --model_base_path="${base}/${name}" "$@"
elif [ -z "${vertex}" ]; then
  exec tpuserve serve --sample "$@"
elif [ -z "${sample}" ]; then
  echo "Variables of Vertex AI are set, and none names a model. Give the model an artifact URI" \
    "(AIP_STORAGE_URI), or set MODEL_BASE_PATH or MODEL_NAME." >&2
  exit 1
fi

if [ -z "${AIP_HTTP_PORT:-}${sagemaker}" ]; then
  set -- --rest_api_port=8501 "$@"
fi
if [ -n "${sample}" ]; then
  # The command refuses --sample beside another model, and beside variables of the services.
  exec tpuserve serve "$@"
fi
exec tpuserve-model-server "$@"
