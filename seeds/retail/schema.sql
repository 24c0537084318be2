-- An online shop and its support desk: the world of tau2-bench's retail domain, as a relational schema.
--
-- The benchmark keeps one nested document of products, users and orders. load.py turns it into rows of these
-- tables, the three views at the end turn them back, and export.sql is the whole document.
--
-- Money is numeric, in dollars. Prices and balances have cents. `payments.amount` has no scale of its own: see
-- quirks.py.
--
-- Rights. The application logs in as a member of retail_app, which owns nothing and which this file does not
-- create: roles belong to the server.

CREATE TABLE products (
    id text PRIMARY KEY,
    name text NOT NULL UNIQUE
);

CREATE TABLE variants (
    id text PRIMARY KEY,                                -- the benchmark's item_id
    product_id text NOT NULL REFERENCES products,
    options jsonb NOT NULL CHECK (jsonb_typeof(options) = 'object'),
    available boolean NOT NULL,
    price numeric(10, 2) NOT NULL CHECK (price >= 0),
    UNIQUE (id, product_id)
);
CREATE INDEX ON variants (product_id);

CREATE TABLE users (
    id text PRIMARY KEY,
    first_name text NOT NULL,
    last_name text NOT NULL,
    email text NOT NULL UNIQUE,
    address1 text NOT NULL,
    address2 text NOT NULL,
    city text NOT NULL,
    state text NOT NULL,
    country text NOT NULL,
    zip text NOT NULL
);
CREATE INDEX ON users (lower(email));
CREATE INDEX ON users (lower(last_name), lower(first_name), zip);

CREATE TABLE payment_methods (
    id text PRIMARY KEY,
    user_id text NOT NULL REFERENCES users,
    kind text NOT NULL CHECK (kind IN ('credit_card', 'paypal', 'gift_card')),
    brand text,
    last_four text,
    balance numeric(12, 2) CHECK (balance >= 0),
    UNIQUE (id, user_id),
    CHECK ((kind = 'credit_card') = (brand IS NOT NULL AND last_four IS NOT NULL)),
    CHECK ((kind = 'gift_card') = (balance IS NOT NULL))
);
CREATE INDEX ON payment_methods (user_id);

CREATE TABLE orders (
    id text PRIMARY KEY,
    user_id text NOT NULL REFERENCES users,
    number integer NOT NULL CHECK (number > 0),         -- which of the user's orders it is
    status text NOT NULL CHECK (status IN (
        'pending', 'pending (item modified)', 'processed', 'delivered', 'cancelled',
        'exchange requested', 'return requested')),
    address1 text NOT NULL,
    address2 text NOT NULL,
    city text NOT NULL,
    state text NOT NULL,
    country text NOT NULL,
    zip text NOT NULL,
    cancel_reason text CHECK (cancel_reason IN ('no longer needed', 'ordered by mistake')),
    exchange_payment_method_id text,
    exchange_price_difference numeric(12, 2),
    return_payment_method_id text,
    UNIQUE (user_id, number),
    FOREIGN KEY (exchange_payment_method_id, user_id) REFERENCES payment_methods (id, user_id),
    FOREIGN KEY (return_payment_method_id, user_id) REFERENCES payment_methods (id, user_id),
    CHECK (cancel_reason IS NULL OR status = 'cancelled'),
    CHECK ((status = 'exchange requested') = (exchange_payment_method_id IS NOT NULL)),
    CHECK ((exchange_payment_method_id IS NULL) = (exchange_price_difference IS NULL)),
    CHECK ((status = 'return requested') = (return_payment_method_id IS NOT NULL))
);

-- What was ordered, at the price and with the options of that day. One variant may be there several times.
CREATE TABLE order_items (
    order_id text NOT NULL REFERENCES orders,
    position integer NOT NULL CHECK (position > 0),
    item_id text NOT NULL,
    product_id text NOT NULL,
    price numeric(10, 2) NOT NULL CHECK (price >= 0),
    options jsonb NOT NULL CHECK (jsonb_typeof(options) = 'object'),
    PRIMARY KEY (order_id, position),
    FOREIGN KEY (item_id, product_id) REFERENCES variants (id, product_id)
);

CREATE TABLE payments (
    order_id text NOT NULL REFERENCES orders,
    position integer NOT NULL CHECK (position > 0),
    kind text NOT NULL CHECK (kind IN ('payment', 'refund')),
    amount numeric NOT NULL CHECK (amount >= 0),
    payment_method_id text NOT NULL REFERENCES payment_methods,
    PRIMARY KEY (order_id, position)
);

CREATE TABLE shipments (
    order_id text NOT NULL REFERENCES orders,
    position integer NOT NULL CHECK (position > 0),
    tracking_ids text[] NOT NULL,
    PRIMARY KEY (order_id, position)
);

CREATE TABLE shipment_items (
    order_id text NOT NULL,
    shipment integer NOT NULL,
    position integer NOT NULL CHECK (position > 0),
    item_id text NOT NULL REFERENCES variants,
    PRIMARY KEY (order_id, shipment, position),
    FOREIGN KEY (order_id, shipment) REFERENCES shipments
);

CREATE TABLE exchange_items (
    order_id text NOT NULL REFERENCES orders,
    position integer NOT NULL CHECK (position > 0),
    item_id text NOT NULL,
    new_item_id text NOT NULL,
    product_id text NOT NULL,
    PRIMARY KEY (order_id, position),
    FOREIGN KEY (item_id, product_id) REFERENCES variants (id, product_id),
    FOREIGN KEY (new_item_id, product_id) REFERENCES variants (id, product_id)
);

CREATE TABLE return_items (
    order_id text NOT NULL REFERENCES orders,
    position integer NOT NULL CHECK (position > 0),
    item_id text NOT NULL REFERENCES variants,
    PRIMARY KEY (order_id, position)
);

-- The documents that the tools return and the benchmark hashes. Every number with a decimal point: a benchmark
-- that writes 20.0 reads 20 as something else, hence `amount + 0.0`.

CREATE VIEW product_documents AS
SELECT p.id, p.name, json_build_object(
    'product_id', p.id,
    'name', p.name,
    'variants', (
        SELECT coalesce(json_object_agg(v.id, json_build_object(
            'item_id', v.id, 'options', v.options, 'available', v.available, 'price', v.price) ORDER BY v.id), '{}')
        FROM variants v WHERE v.product_id = p.id)
) AS document
FROM products p;

CREATE VIEW user_documents AS
SELECT u.id, json_build_object(
    'user_id', u.id,
    'name', json_build_object('first_name', u.first_name, 'last_name', u.last_name),
    'address', json_build_object(
        'address1', u.address1, 'address2', u.address2, 'city', u.city,
        'country', u.country, 'state', u.state, 'zip', u.zip),
    'email', u.email,
    'payment_methods', (
        SELECT coalesce(json_object_agg(m.id, CASE m.kind
            WHEN 'credit_card' THEN json_build_object(
                'source', m.kind, 'id', m.id, 'brand', m.brand, 'last_four', m.last_four)
            WHEN 'gift_card' THEN json_build_object('source', m.kind, 'id', m.id, 'balance', m.balance)
            ELSE json_build_object('source', m.kind, 'id', m.id) END ORDER BY m.id), '{}')
        FROM payment_methods m WHERE m.user_id = u.id),
    'orders', (
        SELECT coalesce(json_agg(o.id ORDER BY o.number), '[]') FROM orders o WHERE o.user_id = u.id)
) AS document
FROM users u;

CREATE VIEW order_documents AS
SELECT o.id, json_build_object(
    'order_id', o.id,
    'user_id', o.user_id,
    'address', json_build_object(
        'address1', o.address1, 'address2', o.address2, 'city', o.city,
        'country', o.country, 'state', o.state, 'zip', o.zip),
    'items', (
        SELECT coalesce(json_agg(json_build_object(
            'name', p.name, 'product_id', i.product_id, 'item_id', i.item_id,
            'price', i.price, 'options', i.options) ORDER BY i.position), '[]')
        FROM order_items i JOIN products p ON p.id = i.product_id WHERE i.order_id = o.id),
    'status', o.status,
    'fulfillments', (
        SELECT coalesce(json_agg(json_build_object(
            'tracking_id', s.tracking_ids,
            'item_ids', (
                SELECT coalesce(json_agg(c.item_id ORDER BY c.position), '[]')
                FROM shipment_items c WHERE c.order_id = s.order_id AND c.shipment = s.position)
            ) ORDER BY s.position), '[]')
        FROM shipments s WHERE s.order_id = o.id),
    'payment_history', (
        SELECT coalesce(json_agg(json_build_object(
            'transaction_type', y.kind, 'amount', y.amount + 0.0,
            'payment_method_id', y.payment_method_id) ORDER BY y.position), '[]')
        FROM payments y WHERE y.order_id = o.id),
    'cancel_reason', o.cancel_reason,
    'exchange_items', (
        SELECT json_agg(e.item_id ORDER BY e.item_id COLLATE "C")
        FROM exchange_items e WHERE e.order_id = o.id),
    'exchange_new_items', (
        SELECT json_agg(e.new_item_id ORDER BY e.new_item_id COLLATE "C")
        FROM exchange_items e WHERE e.order_id = o.id),
    'exchange_payment_method_id', o.exchange_payment_method_id,
    'exchange_price_difference', o.exchange_price_difference,
    'return_items', (
        SELECT json_agg(r.item_id ORDER BY r.item_id COLLATE "C")
        FROM return_items r WHERE r.order_id = o.id),
    'return_payment_method_id', o.return_payment_method_id
) AS document
FROM orders o;

-- What the application may do.

GRANT USAGE ON SCHEMA public TO retail_app;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO retail_app;
GRANT UPDATE (address1, address2, city, state, country, zip) ON users TO retail_app;
GRANT UPDATE (balance) ON payment_methods TO retail_app;
GRANT UPDATE ON orders TO retail_app;
GRANT UPDATE (item_id, price, options) ON order_items TO retail_app;
GRANT INSERT ON payments, exchange_items, return_items TO retail_app;
