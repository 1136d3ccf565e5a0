# The images of pagefleet: `operator`, `engine`, and `model-smollm2`, which carries the demo's model.
#
#   docker build --target operator -t pagefleet/operator .
#   docker build --target engine -t pagefleet/engine .
#   docker build --target model-smollm2 --build-context smollm2=FOLDER -t pagefleet/smollm2 .
#
# Behind a proxy or a private index, put `PIP_INDEX_URL=...`, `UV_DEFAULT_INDEX=...` and the like
# into a file and add `--secret id=build-env,src=FILE`: it is read while dependencies are
# installed, and kept in no layer.

ARG BASE_IMAGE=python:3.11-slim-bookworm
# Each names a stage of this file, or an image that already holds that stage's result.
ARG TOOLS=tools
ARG OPERATOR_DEPS=operator-deps
ARG ENGINE_DEPS=engine-deps

# --- what builds the others and is part of none ---

FROM ${BASE_IMAGE} AS tools
RUN --mount=type=secret,id=build-env \
    set -e; [ ! -r /run/secrets/build-env ] || { set -a; . /run/secrets/build-env; set +a; }; \
    python3 -m venv /opt/tools; \
    /opt/tools/bin/pip install --quiet "uv>=0.9" "hatchling>=1.27"

FROM ${TOOLS} AS builder

# The extras alone, so that no other edit of pyproject.toml installs dependencies anew.
FROM ${BASE_IMAGE} AS extras
COPY pyproject.toml /
RUN python3 -c "import tomllib; [open(f'/{name}.txt', 'w').write('\n'.join(needs)) for name, needs in tomllib.load(open('/pyproject.toml', 'rb'))['project']['optional-dependencies'].items()]"

FROM ${TOOLS} AS wheel
COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
COPY engine /src/engine
COPY kernels /src/kernels
RUN cd /src && /opt/tools/bin/python -m hatchling build --target wheel --directory /wheels

# --- dependencies: one large layer, renewed by the lock file and the extras only ---

FROM ${BASE_IMAGE} AS operator-deps
ENV VIRTUAL_ENV=/opt/pagefleet PATH=/opt/pagefleet/bin:$PATH
RUN --mount=type=secret,id=build-env \
    --mount=type=bind,from=builder,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,from=extras,source=/operator.txt,target=/tmp/operator.txt \
    --mount=type=bind,source=requirements.lock,target=/tmp/requirements.lock \
    set -e; [ ! -r /run/secrets/build-env ] || { set -a; . /run/secrets/build-env; set +a; }; \
    echo "pagefleet:x:65532:65532::/tmp:/usr/sbin/nologin" >> /etc/passwd; \
    echo "pagefleet:x:65532:" >> /etc/group; \
    python3 -m venv --without-pip $VIRTUAL_ENV; \
    /opt/tools/bin/uv pip install --quiet --link-mode copy --compile-bytecode \
        --requirements /tmp/operator.txt --constraints /tmp/requirements.lock

# Triton builds its launchers with a C compiler when a kernel first runs, hence gcc and headers.
# Taken out again: static libraries, NVSHMEM's device bitcode (for linking kernels that call it)
# and the debug information of Triton's compiler: 0.64 of 5.44 GB, none of it opened at run time.
# The import at the end proves that, and leaves bytecode for exactly what a start needs:
# compiling everything would take a minute and 150 MB to save the same two seconds.
FROM ${BASE_IMAGE} AS engine-deps
ENV VIRTUAL_ENV=/opt/pagefleet PATH=/opt/pagefleet/bin:$PATH
RUN --mount=type=secret,id=build-env \
    --mount=type=bind,from=builder,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,from=extras,source=/engine.txt,target=/tmp/engine.txt \
    --mount=type=bind,source=requirements.lock,target=/tmp/requirements.lock \
    set -e; [ ! -r /run/secrets/build-env ] || { set -a; . /run/secrets/build-env; set +a; }; \
    echo "pagefleet:x:65532:65532::/tmp:/usr/sbin/nologin" >> /etc/passwd; \
    echo "pagefleet:x:65532:" >> /etc/group; \
    headers="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include", "posix_prefix"))')"; \
    [ -e "$headers/Python.h" ] && python_headers= || python_headers=libpython3-dev; \
    apt-get -qq update; \
    apt-get -qq install -y --no-install-recommends gcc libc6-dev $python_headers > /dev/null; \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*; \
    python3 -m venv --without-pip $VIRTUAL_ENV; \
    /opt/tools/bin/uv pip install --quiet --link-mode copy \
        --requirements /tmp/engine.txt --constraints /tmp/requirements.lock; \
    cd $VIRTUAL_ENV/lib/python3*/site-packages; \
    find . -name "*.a" -delete; \
    rm -f nvidia/nvshmem/lib/libnvshmem_device*.bc; \
    strip --strip-debug triton/_C/libtriton.so; \
    python -c "import aiohttp.web, gguf, jinja2, prometheus_client, pydantic, torch, triton; from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM"

# --- the images; a change of the project's code renews their last, small layer ---

FROM ${OPERATOR_DEPS} AS operator
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
RUN --mount=type=bind,from=wheel,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,from=wheel,source=/wheels,target=/tmp/wheels \
    set -e; \
    /opt/tools/bin/uv pip install --quiet --no-cache --offline --no-deps /tmp/wheels/*.whl; \
    cd $VIRTUAL_ENV/lib/python3*/site-packages; \
    rm -r pagefleet_engine pagefleet_kernels $VIRTUAL_ENV/bin/pagefleet-engine; \
    python -m compileall -q pagefleet_*
USER 65532:65532
ENTRYPOINT ["pagefleet-operator"]

FROM ${ENGINE_DEPS} AS engine
# /tmp is the one folder that a pod with a read-only root gives the engine to write to.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp HF_HOME=/tmp/huggingface \
    TRITON_CACHE_DIR=/tmp/triton TORCHINDUCTOR_CACHE_DIR=/tmp/inductor
RUN --mount=type=bind,from=wheel,source=/opt/tools,target=/opt/tools \
    --mount=type=bind,from=wheel,source=/wheels,target=/tmp/wheels \
    set -e; \
    /opt/tools/bin/uv pip install --quiet --no-cache --offline --no-deps /tmp/wheels/*.whl; \
    cd $VIRTUAL_ENV/lib/python3*/site-packages; \
    rm -r pagefleet_operator $VIRTUAL_ENV/bin/pagefleet $VIRTUAL_ENV/bin/pagefleet-operator; \
    python -m compileall -q pagefleet_*
USER 65532:65532
ENTRYPOINT ["pagefleet-engine"]

# A model image needs a folder /model, and a `cp` for clusters without image volumes.
FROM ${BASE_IMAGE} AS model-smollm2
COPY --from=smollm2 . /model/
USER 65532:65532
CMD ["ls", "-l", "/model"]
