#!/bin/bash
# Ten transfers per second until it is stopped.
set -euo pipefail
sqlplus -s "bank/$ORACLE_PASSWORD@oracle:1521/FREEPDB1" <<'EOF'
DECLARE
    source_id NUMBER;
    target_id NUMBER;
    cents NUMBER;
BEGIN
    LOOP
        source_id := TRUNC(DBMS_RANDOM.VALUE(1, 101));
        target_id := TRUNC(DBMS_RANDOM.VALUE(1, 101));
        cents := TRUNC(DBMS_RANDOM.VALUE(1, 1001));
        UPDATE accounts SET balance_cents = balance_cents - cents WHERE id = source_id;
        UPDATE accounts SET balance_cents = balance_cents + cents WHERE id = target_id;
        INSERT INTO transfers (source_id, target_id, cents) VALUES (source_id, target_id, cents);
        COMMIT;
        DBMS_SESSION.SLEEP(0.1);
    END LOOP;
END;
/
EOF
