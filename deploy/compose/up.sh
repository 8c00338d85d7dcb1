#!/usr/bin/env bash
# up.sh [profile …]: starts an example bank with docker compose.
# Profiles: core, postgres, mysql, mongo, oracle, turso, observe (default: core observe).
# The first run writes .env with random passwords, which docker compose reads.
set -euo pipefail
cd "$(dirname "$0")/../.."

secret() { od -An -N18 -tx1 /dev/urandom | tr -d ' \n'; }

profiles=$*
if [[ ! -e .env ]]; then
    umask 077
    {
        echo "COMPOSE_PROFILES=core,observe"
        for name in POSTGRES_PASSWORD MYSQL_PASSWORD ORACLE_PASSWORD GRAFANA_PASSWORD LOWWATER_TOKEN; do
            echo "$name=$(secret)"
        done
    } >.env
    echo "compose: wrote .env with new passwords; it stays on this machine (git does not see it)"
fi
if [[ -n $profiles ]]; then
    # Kafka is in the profile core
    chosen=$(printf '%s\n' core $profiles | sort -u | paste -sd, -)
    sed -i.old "s/^COMPOSE_PROFILES=.*/COMPOSE_PROFILES=$chosen/" .env && rm -f .env.old
fi
docker compose up --detach --build --remove-orphans
cat <<'EOF'

  docker compose ps                                     who is healthy
  docker compose logs -f merger                         what it does
  docker compose exec merger python3 -c "import urllib.request as r; print(r.urlopen('http://localhost:8080/status').read().decode())"
  http://localhost:8090                                 the API and its page; the token: grep LOWWATER_TOKEN .env
  http://localhost:3000                                 Grafana (admin; grep GRAFANA_PASSWORD .env), with the profile observe
  docker compose down                                   end it; with --volumes nothing is left
EOF
