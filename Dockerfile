# The broker in an image of its own: compiled in one stage, run in another by a user that owns nothing but its data.
# tests/packaging/test_docker.py runs the commands of the first stage and checks the second against the rest.

FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libssl-dev pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements.lock ./
RUN python -m venv /opt/sluice \
    && /opt/sluice/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY broker broker
RUN /opt/sluice/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/sluice --shell /usr/sbin/nologin sluice \
    && install --directory --owner sluice --group sluice --mode 0755 /var/lib/sluice
COPY --from=build /opt/sluice /opt/sluice
COPY etc/broker.yaml /etc/sluice/broker.yaml
COPY policies /etc/sluice/policies
# A container's port is on no loopback address, and the shipped file has no users, so anonymous clients are permitted here.
# A settings file of your own replaces this; without users in it the broker doesn't start.
RUN printf '\nsecurity:\n  allow_anonymous: true\n' >> /etc/sluice/broker.yaml
ENV PATH=/opt/sluice/bin:$PATH PYTHONUNBUFFERED=1
USER sluice
WORKDIR /var/lib/sluice
VOLUME /var/lib/sluice
EXPOSE 5672 8672
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8672/readyz', timeout=4)"]
ENTRYPOINT ["sluice"]
CMD ["serve", "--config", "/etc/sluice/broker.yaml", "--policies", "/etc/sluice/policies", "--data", "/var/lib/sluice", "--listen", "amqp://0.0.0.0:5672", "--http", "0.0.0.0:8672"]
