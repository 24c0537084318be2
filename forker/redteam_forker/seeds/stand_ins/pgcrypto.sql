-- pgcrypto without OpenSSL: what PostgreSQL's own hashes and random ids give.
CREATE OR REPLACE FUNCTION {schema}gen_random_uuid() RETURNS pg_catalog.uuid LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$SELECT pg_catalog.gen_random_uuid()$$;
CREATE OR REPLACE FUNCTION {schema}gen_random_bytes(count pg_catalog.int4) RETURNS pg_catalog.bytea
LANGUAGE plpgsql VOLATILE STRICT PARALLEL SAFE
AS $$
DECLARE made bytea := '';
BEGIN
IF count < 1 OR count > 1024 THEN RAISE external_routine_invocation_exception USING MESSAGE = 'Length not in range'; END IF;
WHILE pg_catalog.length(made) < count LOOP
made := made OPERATOR(pg_catalog.||) pg_catalog.sha256(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()));
END LOOP;
RETURN pg_catalog.substr(made, 1, count);
END
$$;
CREATE OR REPLACE FUNCTION {schema}digest(data pg_catalog.bytea, type pg_catalog.text) RETURNS pg_catalog.bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
CASE pg_catalog.lower(type)
WHEN 'md5' THEN RETURN pg_catalog.decode(pg_catalog.md5(data), 'hex');
WHEN 'sha224' THEN RETURN pg_catalog.sha224(data);
WHEN 'sha256' THEN RETURN pg_catalog.sha256(data);
WHEN 'sha384' THEN RETURN pg_catalog.sha384(data);
WHEN 'sha512' THEN RETURN pg_catalog.sha512(data);
ELSE RAISE feature_not_supported USING MESSAGE = pg_catalog.format('digest(%L) is not in the stand-in for extension pgcrypto', type),
HINT = 'Use a server that has pgcrypto, or md5, sha224, sha256, sha384 or sha512.';
END CASE;
END
$$;
CREATE OR REPLACE FUNCTION {schema}digest(data pg_catalog.text, type pg_catalog.text) RETURNS pg_catalog.bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE plain bytea := pg_catalog.convert_to(data, pg_catalog.getdatabaseencoding());
BEGIN
CASE pg_catalog.lower(type)
WHEN 'md5' THEN RETURN pg_catalog.decode(pg_catalog.md5(plain), 'hex');
WHEN 'sha224' THEN RETURN pg_catalog.sha224(plain);
WHEN 'sha256' THEN RETURN pg_catalog.sha256(plain);
WHEN 'sha384' THEN RETURN pg_catalog.sha384(plain);
WHEN 'sha512' THEN RETURN pg_catalog.sha512(plain);
ELSE RAISE feature_not_supported USING MESSAGE = pg_catalog.format('digest(%L) is not in the stand-in for extension pgcrypto', type),
HINT = 'Use a server that has pgcrypto, or md5, sha224, sha256, sha384 or sha512.';
END CASE;
END
$$;
CREATE OR REPLACE FUNCTION {schema}hmac(data pg_catalog.bytea, key pg_catalog.bytea, type pg_catalog.text) RETURNS pg_catalog.bytea
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
kind text := pg_catalog.lower(type);
block int := CASE WHEN kind IN ('sha384', 'sha512') THEN 128 ELSE 64 END;
padded bytea := key;
inner_pad bytea;
outer_pad bytea;
hashed bytea;
hash text := CASE kind WHEN 'md5' THEN 'SELECT pg_catalog.decode(pg_catalog.md5($1), ''hex'')'
WHEN 'sha224' THEN 'SELECT pg_catalog.sha224($1)' WHEN 'sha256' THEN 'SELECT pg_catalog.sha256($1)'
WHEN 'sha384' THEN 'SELECT pg_catalog.sha384($1)' WHEN 'sha512' THEN 'SELECT pg_catalog.sha512($1)' END;
BEGIN
IF hash IS NULL THEN RAISE feature_not_supported USING MESSAGE = pg_catalog.format('hmac(%L) is not in the stand-in for extension pgcrypto', type),
HINT = 'Use a server that has pgcrypto, or md5, sha224, sha256, sha384 or sha512.'; END IF;
IF pg_catalog.length(padded) > block THEN EXECUTE hash INTO padded USING padded; END IF;
padded := padded OPERATOR(pg_catalog.||) pg_catalog.decode(pg_catalog.repeat('00', block - pg_catalog.length(padded)), 'hex');
inner_pad := padded;
outer_pad := padded;
FOR at IN 0 .. block - 1 LOOP
inner_pad := pg_catalog.set_byte(inner_pad, at, pg_catalog.get_byte(padded, at) # 54);
outer_pad := pg_catalog.set_byte(outer_pad, at, pg_catalog.get_byte(padded, at) # 92);
END LOOP;
EXECUTE hash INTO hashed USING inner_pad OPERATOR(pg_catalog.||) data;
EXECUTE hash INTO hashed USING outer_pad OPERATOR(pg_catalog.||) hashed;
RETURN hashed;
END
$$;
CREATE OR REPLACE FUNCTION {schema}hmac(data pg_catalog.text, key pg_catalog.text, type pg_catalog.text) RETURNS pg_catalog.bytea
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$SELECT {schema}hmac(pg_catalog.convert_to(data, pg_catalog.getdatabaseencoding()), pg_catalog.convert_to(key, pg_catalog.getdatabaseencoding()), type)$$;
-- Password hashing and encryption are not to be imitated.
CREATE OR REPLACE FUNCTION {schema}crypt(pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'crypt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}gen_salt(pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'gen_salt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}gen_salt(pg_catalog.text, pg_catalog.int4) RETURNS pg_catalog.text LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'gen_salt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}encrypt(pg_catalog.bytea, pg_catalog.bytea, pg_catalog.text) RETURNS pg_catalog.bytea LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'encrypt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}decrypt(pg_catalog.bytea, pg_catalog.bytea, pg_catalog.text) RETURNS pg_catalog.bytea LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'decrypt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}pgp_sym_encrypt(pg_catalog.text, pg_catalog.text) RETURNS pg_catalog.bytea LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'pgp_sym_encrypt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
CREATE OR REPLACE FUNCTION {schema}pgp_sym_decrypt(pg_catalog.bytea, pg_catalog.text) RETURNS pg_catalog.text LANGUAGE plpgsql
AS $$BEGIN RAISE feature_not_supported USING MESSAGE = 'pgp_sym_decrypt() is not in the stand-in for extension pgcrypto', HINT = 'Use a server that has pgcrypto.'; END$$;
