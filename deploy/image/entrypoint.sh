#!/bin/sh
# Starts the server in the image. The arguments are flags of the server. They come last, and so
# override the flags below.
set -eu
# TensorFlow Serving's image calls its model "model" where MODEL_NAME is not set.
name="${MODEL_NAME:-model}"
case " $* " in
  *" --model_base_path"* | *" --model_config_file"*) ;;
  *)
    # Without a model, serve the sample model.
    if [ -z "${MODEL_NAME}" ] && [ ! -d "${MODEL_BASE_PATH}/${name}" ]; then
      exec tpuserve serve --sample "$@"
    fi
    ;;
esac
exec tpuserve-model-server --port=8500 --rest_api_port=8501 \
  --model_name="${name}" --model_base_path="${MODEL_BASE_PATH}/${name}" "$@"
