-- A bank: transfers between a hundred accounts, each a transaction over two tables.
CREATE DATABASE IF NOT EXISTS bank;
USE bank;
CREATE TABLE IF NOT EXISTS accounts (id INT PRIMARY KEY, balance_cents BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS transfers (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, cents BIGINT NOT NULL,
    at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);
INSERT IGNORE INTO accounts
    WITH RECURSIVE ids (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < 100) SELECT id, 1000000 FROM ids;
