#!/bin/sh
# Ten transfers per second until it is stopped.
set -eu
export MYSQL_PWD="$MYSQL_PASSWORD"
while true; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        echo "SET @a = 1 + FLOOR(RAND() * 100), @b = 1 + FLOOR(RAND() * 100), @c = 1 + FLOOR(RAND() * 1000);
START TRANSACTION;
UPDATE accounts SET balance_cents = balance_cents - @c WHERE id = @a;
UPDATE accounts SET balance_cents = balance_cents + @c WHERE id = @b;
INSERT INTO transfers (source, target, cents) VALUES (@a, @b, @c);
COMMIT;"
    done | mysql --host=mysql --user=root bank
    sleep 1
done
