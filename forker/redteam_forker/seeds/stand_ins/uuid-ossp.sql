-- uuid-ossp without libuuid. Version 1 ids carry the time and a random node, never the machine's.
CREATE OR REPLACE FUNCTION {schema}uuid_nil() RETURNS pg_catalog.uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$SELECT '00000000-0000-0000-0000-000000000000'::pg_catalog.uuid$$;
CREATE OR REPLACE FUNCTION {schema}uuid_ns_dns() RETURNS pg_catalog.uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$SELECT '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::pg_catalog.uuid$$;
CREATE OR REPLACE FUNCTION {schema}uuid_ns_url() RETURNS pg_catalog.uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$SELECT '6ba7b811-9dad-11d1-80b4-00c04fd430c8'::pg_catalog.uuid$$;
CREATE OR REPLACE FUNCTION {schema}uuid_ns_oid() RETURNS pg_catalog.uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$SELECT '6ba7b812-9dad-11d1-80b4-00c04fd430c8'::pg_catalog.uuid$$;
CREATE OR REPLACE FUNCTION {schema}uuid_ns_x500() RETURNS pg_catalog.uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$SELECT '6ba7b814-9dad-11d1-80b4-00c04fd430c8'::pg_catalog.uuid$$;
CREATE OR REPLACE FUNCTION {schema}uuid_generate_v4() RETURNS pg_catalog.uuid LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
AS $$SELECT pg_catalog.gen_random_uuid()$$;
CREATE OR REPLACE FUNCTION {schema}uuid_generate_v1mc() RETURNS pg_catalog.uuid LANGUAGE plpgsql VOLATILE STRICT PARALLEL SAFE
AS $$
DECLARE
ticks bigint := (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 10000000)::bigint + 122192928000000000;
random bytea := pg_catalog.uuid_send(pg_catalog.gen_random_uuid());
stamp bytea := pg_catalog.int8send(ticks);
made bytea;
BEGIN
made := pg_catalog.substr(stamp, 5, 4) OPERATOR(pg_catalog.||) pg_catalog.substr(stamp, 3, 2) OPERATOR(pg_catalog.||) pg_catalog.substr(stamp, 1, 2)
OPERATOR(pg_catalog.||) pg_catalog.substr(random, 9, 2) OPERATOR(pg_catalog.||) pg_catalog.substr(random, 1, 6);
made := pg_catalog.set_byte(made, 6, (pg_catalog.get_byte(made, 6) & 15) | 16);
made := pg_catalog.set_byte(made, 8, (pg_catalog.get_byte(made, 8) & 63) | 128);
made := pg_catalog.set_byte(made, 10, pg_catalog.get_byte(made, 10) | 1);
RETURN pg_catalog.encode(made, 'hex')::pg_catalog.uuid;
END
$$;
CREATE OR REPLACE FUNCTION {schema}uuid_generate_v1() RETURNS pg_catalog.uuid LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$SELECT {schema}uuid_generate_v1mc()$$;
CREATE OR REPLACE FUNCTION {schema}uuid_generate_v3(namespace pg_catalog.uuid, name pg_catalog.text) RETURNS pg_catalog.uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
made bytea := pg_catalog.decode(pg_catalog.md5(pg_catalog.uuid_send(namespace) OPERATOR(pg_catalog.||) pg_catalog.convert_to(name, 'UTF8')), 'hex');
BEGIN
made := pg_catalog.set_byte(made, 6, (pg_catalog.get_byte(made, 6) & 15) | 48);
made := pg_catalog.set_byte(made, 8, (pg_catalog.get_byte(made, 8) & 63) | 128);
RETURN pg_catalog.encode(made, 'hex')::pg_catalog.uuid;
END
$$;
CREATE OR REPLACE FUNCTION {schema}uuid_generate_v5(namespace pg_catalog.uuid, name pg_catalog.text) RETURNS pg_catalog.uuid
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'uuid_generate_v5() is not in the stand-in for extension uuid-ossp: this server has no SHA-1',
HINT = 'Use a server that has uuid-ossp, or uuid_generate_v3() or v4().'; END$$;
