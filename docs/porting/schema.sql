-- The shop of all four examples.
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE orders (
    id int PRIMARY KEY,
    customer_id int NOT NULL REFERENCES customers,
    status text NOT NULL DEFAULT 'open'
);
INSERT INTO customers SELECT n, 'Customer ' || n FROM generate_series(1, 20) n;
INSERT INTO orders SELECT 100 + n, n FROM generate_series(1, 20) n;
