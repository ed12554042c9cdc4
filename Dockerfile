# The hub: `bazaar serve` for a market. `docker compose up` starts it with PostgreSQL beside it (compose.yaml).
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/bazaar \
    && /opt/bazaar/bin/pip install --no-cache-dir -c constraints.txt '.[service,federated,privacy]'

FROM python:3.12-slim
COPY --from=build /opt/bazaar /opt/bazaar
RUN useradd --system --uid 10001 --home-dir /var/lib/bazaar --create-home --shell /usr/sbin/nologin bazaar
ENV PATH=/opt/bazaar/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/bazaar
USER 10001
VOLUME /var/lib/bazaar
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
CMD ["bazaar", "serve", "--home", "/var/lib/bazaar/hub", "--host", "0.0.0.0", "--port", "8000"]
