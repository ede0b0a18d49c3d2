# vtrans serve, and translate and logprob: docker run ... vtrans translate. docs/install.md describes it. With
# --build-arg TORCH=yes, the image also has torch's CPU build, for the commands that train.
# The version of Python with which all tests run. The digest is that of the index for all platforms; to update it:
# docker buildx imagetools inspect python:3.11-slim-bookworm
FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS base

FROM base AS wheel
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY recipes recipes
COPY vtrans vtrans
# A wheel without the compiled decoder is named ...-none-any.whl. The image would be slow, so its build fails; --verbose
# shows why the compiler failed.
RUN pip wheel --verbose --no-cache-dir --no-deps --wheel-dir /wheels . && ls /wheels/vtrans_nmt-*-linux_*.whl

FROM base
ARG TORCH=
COPY .ci/constraints.txt recipes/requirements /tmp/
COPY --from=wheel /wheels /tmp/wheels
# The constraints pin all versions. torch's own index has the CPU build, without gigabytes of GPU libraries, but not the
# pinned versions of all that torch depends on.
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt --requirement /tmp/serve.txt \
    && if [ -n "$TORCH" ]; then pip install --no-cache-dir --constraint /tmp/constraints.txt \
         --extra-index-url https://download.pytorch.org/whl/cpu \
         "$(grep '^torch==' /tmp/constraints.txt)+cpu" sacrebleu; fi \
    && pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && rm -rf /tmp/wheels /tmp/*.txt \
    && useradd --uid 10001 --create-home vtrans \
    && install --directory --owner vtrans --group vtrans --mode 700 /cache
USER 10001
ENV VTRANS_CACHE=/cache
WORKDIR /home/vtrans
VOLUME ["/model", "/cache"]
EXPOSE 5000
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health', timeout=5)"]
ENTRYPOINT ["vtrans"]
CMD ["serve", "/model", "--host", "0.0.0.0"]
