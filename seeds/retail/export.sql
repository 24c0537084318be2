-- The whole world as the benchmark's nested document: one row, one column of JSON text.
SELECT json_build_object(
    'products', (SELECT coalesce(json_object_agg(id, document), '{}') FROM product_documents),
    'users', (SELECT coalesce(json_object_agg(id, document), '{}') FROM user_documents),
    'orders', (SELECT coalesce(json_object_agg(id, document), '{}') FROM order_documents)
)::text AS document
