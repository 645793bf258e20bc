# An image of the server, with the ports and variables of TensorFlow Serving's image.
#
#     docker build -t tpuserve .
#     docker run --rm -p 8501:8501 --read-only --tmpfs /tmp tpuserve
#     docker run --rm -p 8501:8501 -v "$PWD/half:/models/half:ro" -e MODEL_NAME=half tpuserve
#
# For both processors: docker buildx build --platform linux/amd64,linux/arm64 -t tpuserve .

ARG PYTHON_IMAGE=python:3.12-slim

FROM ${PYTHON_IMAGE} AS build
# Extras to install beside the server, with brackets; EXTRAS="" installs none. gs:// and s3:// need
# the extra remote, and so does Vertex AI, which passes the model's gs:// address.
ARG EXTRAS="[remote,tracing]"
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tpuserve tpuserve
COPY trainer trainer
COPY server server
RUN python3 -m venv /opt/tpuserve \
    && /opt/tpuserve/bin/pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS}"

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/tpuserve /opt/tpuserve
COPY --chmod=755 deploy/image/entrypoint.sh deploy/image/healthcheck.py /usr/local/bin/
# SageMaker looks for these labels where an endpoint has several models or containers.
LABEL com.amazonaws.sagemaker.capabilities.multi-models=true \
    com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true
# Without a model, the image serves the sample model, which comes with the package.
ENV PATH="/opt/tpuserve/bin:${PATH}" \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    MODEL_NAME="" \
    MODEL_BASE_PATH=/models
USER 1000:1000
WORKDIR /tmp
EXPOSE 8500 8501
# The server imports TensorFlow and loads the model before it is ready.
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["healthcheck.py"]
ENTRYPOINT ["entrypoint.sh"]
