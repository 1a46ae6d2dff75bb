# The API, with the Python packages that requirements.lock pins.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY service service
RUN ["pip", "wheel", "--no-cache-dir", "--no-deps", "--wheel-dir", "/wheels", "."]

FROM python:3.11-slim
ENV PYTHONUNBUFFERED=1 TRAINCOST_DATABASE_URL=sqlite:////data/traincost.db
RUN useradd --system --uid 10001 --no-create-home traincost && install --directory --owner traincost /data
COPY requirements.lock /
RUN ["pip", "install", "--no-cache-dir", "--require-hashes", "--requirement", "/requirements.lock"]
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl
USER 10001
VOLUME /data
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["traincost", "serve", "--host", "0.0.0.0", "--port", "8000"]
