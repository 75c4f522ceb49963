CREATE FUNCTION ledger_stop() RETURNS trigger
    LANGUAGE plpgsql
    AS $$ BEGIN RAISE USING MESSAGE = TG_ARGV[0], ERRCODE = 'integrity_constraint_violation'; END $$;
CREATE TABLE account (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    unit text NOT NULL COLLATE pg_catalog."C",
    adjacency text NOT NULL COLLATE pg_catalog."C",
    currency text NOT NULL COLLATE pg_catalog."C",
    rdp_order double precision,
    scope text NOT NULL COLLATE pg_catalog."C",
    parent text COLLATE pg_catalog."C",
    overlap integer,
    state text NOT NULL COLLATE pg_catalog."C",
    policy integer NOT NULL,
    test boolean NOT NULL,
    epsilon double precision NOT NULL,
    delta double precision NOT NULL,
    limit_units bigint NOT NULL,
    spent_units bigint NOT NULL,
    held_units bigint NOT NULL,
    delta_limit_units bigint NOT NULL,
    delta_spent_units bigint NOT NULL,
    CONSTRAINT account_adjacency_check CHECK ((adjacency = ANY (ARRAY['add_remove'::text, 'replace_one'::text, 'zero_out'::text]))),
    CONSTRAINT account_check CHECK (((currency = 'pure'::text) = (delta_limit_units = 0))),
    CONSTRAINT account_check1 CHECK (((parent IS NULL) OR (parent <> name))),
    CONSTRAINT account_check2 CHECK (((currency = 'rdp'::text) = (rdp_order IS NOT NULL))),
    CONSTRAINT account_check3 CHECK ((delta_spent_units <= delta_limit_units)),
    CONSTRAINT account_check4 CHECK (((delta_limit_units >= 0) AND (delta_spent_units >= 0))),
    CONSTRAINT account_check5 CHECK (((limit_units > 0) AND (spent_units >= 0) AND (held_units >= 0))),
    CONSTRAINT account_check6 CHECK (((spent_units + held_units) <= limit_units)),
    CONSTRAINT account_currency_check CHECK ((currency = ANY (ARRAY['plan'::text, 'rdp'::text, 'gdp'::text, 'zcdp'::text, 'pure'::text]))),
    CONSTRAINT account_name_check CHECK ((length(name) > 0)),
    CONSTRAINT account_overlap_check CHECK (((overlap IS NULL) OR (overlap > 0))),
    CONSTRAINT account_scope_check CHECK ((scope = ANY (ARRAY['federation'::text, 'domain'::text, 'silo'::text, 'block'::text, 'run'::text, 'analyst'::text]))),
    CONSTRAINT account_state_check CHECK ((state = ANY (ARRAY['open'::text, 'frozen'::text, 'retired'::text]))),
    CONSTRAINT account_unit_check CHECK ((unit = ANY (ARRAY['record'::text, 'user'::text, 'client'::text])))
);
CREATE SEQUENCE account_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE account_id_seq OWNED BY account.id;
CREATE TABLE admission (
    id integer NOT NULL,
    run text NOT NULL COLLATE pg_catalog."C",
    digest text NOT NULL COLLATE pg_catalog."C",
    delta double precision NOT NULL,
    noise_at text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT admission_noise_at_check CHECK ((noise_at = ANY (ARRAY['silo'::text, 'sum'::text, 'coordinator'::text])))
);
CREATE SEQUENCE admission_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE admission_id_seq OWNED BY admission.id;
CREATE TABLE admission_line (
    admission_id integer NOT NULL,
    account_id integer NOT NULL,
    epsilon double precision NOT NULL,
    accountant text NOT NULL COLLATE pg_catalog."C",
    epsilon_units bigint NOT NULL,
    delta_units bigint NOT NULL,
    derived boolean NOT NULL,
    CONSTRAINT admission_line_check CHECK (((epsilon_units > 0) AND (delta_units > 0)))
);
CREATE TABLE allowance (
    admission_id integer NOT NULL,
    account_id integer NOT NULL,
    kind_id integer NOT NULL,
    allowed bigint NOT NULL,
    held bigint NOT NULL,
    spent bigint NOT NULL,
    CONSTRAINT allowance_check CHECK (((held + spent) <= allowed)),
    CONSTRAINT allowance_check1 CHECK (((allowed > 0) AND (held >= 0) AND (spent >= 0)))
);
CREATE TABLE charge (
    txid text NOT NULL COLLATE pg_catalog."C",
    run text NOT NULL COLLATE pg_catalog."C",
    round integer,
    purpose text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    fence integer NOT NULL,
    test boolean NOT NULL,
    reserved_at text NOT NULL COLLATE pg_catalog."C",
    settled_at text COLLATE pg_catalog."C",
    CONSTRAINT charge_check CHECK (((state = 'reserved'::text) = (settled_at IS NULL))),
    CONSTRAINT charge_purpose_check CHECK ((purpose = ANY (ARRAY['train'::text, 'evaluate'::text, 'metric'::text, 'tune'::text, 'query'::text, 'synthetic'::text, 'clip-quantile'::text, 'attack-audit'::text]))),
    CONSTRAINT charge_state_check CHECK ((state = ANY (ARRAY['reserved'::text, 'committed'::text, 'forfeited'::text, 'aborted'::text]))),
    CONSTRAINT charge_txid_check CHECK ((length(txid) > 0))
);
CREATE TABLE charge_line (
    txid text NOT NULL COLLATE pg_catalog."C",
    account_id integer NOT NULL,
    kind_id integer NOT NULL,
    count bigint NOT NULL,
    units bigint,
    derived boolean NOT NULL,
    consent text COLLATE pg_catalog."C",
    CONSTRAINT charge_line_check CHECK (((units IS NOT NULL) OR (NOT derived))),
    CONSTRAINT charge_line_count_check CHECK ((count > 0)),
    CONSTRAINT charge_line_units_check CHECK (((units IS NULL) OR (units > 0)))
);
CREATE TABLE checkpoint (
    seq integer NOT NULL,
    root character varying(64) NOT NULL COLLATE pg_catalog."C",
    note text NOT NULL COLLATE pg_catalog."C"
);
CREATE TABLE event (
    seq integer NOT NULL,
    ts text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    txid text COLLATE pg_catalog."C",
    body text NOT NULL COLLATE pg_catalog."C",
    prev character varying(64) NOT NULL COLLATE pg_catalog."C",
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT event_kind_check CHECK ((kind = ANY (ARRAY['account-opened'::text, 'limit-changed'::text, 'frozen'::text, 'thawed'::text, 'retired'::text, 'policy'::text, 'admitted'::text, 'run-opened'::text, 'reserved'::text, 'committed'::text, 'forfeited'::text, 'aborted'::text, 'published'::text, 'refused'::text, 'checkpoint'::text, 'witnessed'::text, 'migrated'::text])))
);
CREATE TABLE head (
    id integer NOT NULL,
    version integer NOT NULL,
    seq integer NOT NULL,
    hash character varying(64) NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT head_id_check CHECK ((id = 1))
);
CREATE TABLE kind (
    id integer NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C"
);
CREATE SEQUENCE kind_id_seq AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE kind_id_seq OWNED BY kind.id;
CREATE TABLE outbox (
    txid text NOT NULL COLLATE pg_catalog."C",
    sha256 character varying(64) NOT NULL COLLATE pg_catalog."C",
    payload bytea,
    published_at text COLLATE pg_catalog."C",
    CONSTRAINT outbox_check CHECK (((payload IS NULL) = (published_at IS NOT NULL))),
    CONSTRAINT outbox_sha256_check CHECK ((length((sha256)::text) = 64))
);
CREATE TABLE policy (
    version integer NOT NULL,
    body text NOT NULL COLLATE pg_catalog."C",
    sha256 character varying(64) NOT NULL COLLATE pg_catalog."C",
    signed_by text NOT NULL COLLATE pg_catalog."C",
    signature text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT policy_version_check CHECK ((version > 0))
);
CREATE TABLE run (
    name text NOT NULL COLLATE pg_catalog."C",
    fence integer NOT NULL,
    CONSTRAINT run_fence_check CHECK ((fence > 0))
);
CREATE TABLE witness (
    seq integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    signature text NOT NULL COLLATE pg_catalog."C"
);
ALTER TABLE ONLY account ALTER COLUMN id SET DEFAULT nextval('account_id_seq'::regclass);
ALTER TABLE ONLY admission ALTER COLUMN id SET DEFAULT nextval('admission_id_seq'::regclass);
ALTER TABLE ONLY kind ALTER COLUMN id SET DEFAULT nextval('kind_id_seq'::regclass);
INSERT INTO account VALUES (1, 'north', 'record', 'add_remove', 'plan', NULL, 'silo', NULL, NULL, 'open', 0, false, 3, 0.0001, 3000000000000, 2258145363374, 0, 100000000000000, 10000000000000);
INSERT INTO account VALUES (2, 'live', 'record', 'add_remove', 'gdp', NULL, 'silo', NULL, NULL, 'open', 0, false, 8, 1e-05, 2775657952958, 62500000000, 0, 10000000000000, 0);
INSERT INTO admission VALUES (1, 'r1', 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 1e-05, 'silo');
INSERT INTO admission_line VALUES (1, 1, 2.2581453633737505, 'gdp', 2258145363374, 10000000000000, false);
INSERT INTO allowance VALUES (1, 1, 1, 5, 0, 3);
INSERT INTO charge VALUES ('t0', 'r1', 0, 'train', 'committed', 1, false, '2026-11-30T01:28:11.212077+00:00', '2026-11-30T01:28:11.223589+00:00');
INSERT INTO charge VALUES ('t1', 'r1', 1, 'train', 'forfeited', 1, false, '2026-11-30T01:28:11.269879+00:00', '2026-11-30T01:28:11.280806+00:00');
INSERT INTO charge VALUES ('t2', 'r1', 2, 'train', 'committed', 1, false, '2026-11-30T01:28:11.292077+00:00', '2026-11-30T01:28:11.302145+00:00');
INSERT INTO charge VALUES ('q', 'q1', 0, 'query', 'committed', 1, false, '2026-11-30T01:28:11.330747+00:00', '2026-11-30T01:28:11.344499+00:00');
INSERT INTO charge_line VALUES ('t0', 1, 1, 1, NULL, false, NULL);
INSERT INTO charge_line VALUES ('t1', 1, 1, 1, NULL, false, NULL);
INSERT INTO charge_line VALUES ('t2', 1, 1, 1, NULL, false, NULL);
INSERT INTO charge_line VALUES ('q', 2, 1, 1, 62500000000, false, NULL);
INSERT INTO event VALUES (1, '2026-11-30T01:28:11.136792+00:00', 'account-opened', NULL, '{"adjacency":"add_remove","currency":"plan","delta":0.0001,"delta_limit_units":100000000000000,"epsilon":3.0,"limit_units":3000000000000,"name":"north","order":null,"overlap":null,"parent":null,"scope":"silo","test":false,"unit":"record"}', '0000000000000000000000000000000000000000000000000000000000000000', '5eaa3e37fd2fcfe42591a50664e5ee3583a30c3659cb394a24fc3524a6569418');
INSERT INTO event VALUES (2, '2026-11-30T01:28:11.151467+00:00', 'account-opened', NULL, '{"adjacency":"add_remove","currency":"gdp","delta":1e-05,"delta_limit_units":10000000000000,"epsilon":8.0,"limit_units":2775657952958,"name":"live","order":null,"overlap":null,"parent":null,"scope":"silo","test":false,"unit":"record"}', '5eaa3e37fd2fcfe42591a50664e5ee3583a30c3659cb394a24fc3524a6569418', '0a7d99a5dc56904763d2446e2bb1a195e5eea11a88c7c7eb5e78e93abb5d9f97');
INSERT INTO event VALUES (3, '2026-11-30T01:28:11.194381+00:00', 'admitted', NULL, '{"delta":1e-05,"digest":"dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","lines":[[2.2581453633737505,"gdp",2258145363374,10000000000000,[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":4.0}",5]],["north"]]],"noise_at":"silo","run":"r1"}', '0a7d99a5dc56904763d2446e2bb1a195e5eea11a88c7c7eb5e78e93abb5d9f97', '78bc75d0cc5232632bde4b8033eb7dc02215fb9993433772ec18c642f949d9c6');
INSERT INTO event VALUES (4, '2026-11-30T01:28:11.198103+00:00', 'run-opened', NULL, '{"fence":1,"run":"r1"}', '78bc75d0cc5232632bde4b8033eb7dc02215fb9993433772ec18c642f949d9c6', '24807832c6c6ee4cd817357bf889578898b27d13f9b45c83a6d7f88fb931b9a1');
INSERT INTO event VALUES (5, '2026-11-30T01:28:11.212077+00:00', 'reserved', 't0', '{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":4.0}",1,null,["north"]]],"purpose":"train","round":0,"run":"r1","test":false}', '24807832c6c6ee4cd817357bf889578898b27d13f9b45c83a6d7f88fb931b9a1', 'c5cdbebf8ef5d85e96711955d7556322ed81ddcbd69ebbcfee9de4ba1efb49e8');
INSERT INTO event VALUES (6, '2026-11-30T01:28:11.223589+00:00', 'committed', 't0', '{"sha256":"a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}', 'c5cdbebf8ef5d85e96711955d7556322ed81ddcbd69ebbcfee9de4ba1efb49e8', 'f2e85f068fa5df6b1567b83abe8d1062f6bf90f56711f316bcefb6835af58742');
INSERT INTO event VALUES (7, '2026-11-30T01:28:11.259379+00:00', 'published', 't0', '{"sha256":"a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e"}', 'f2e85f068fa5df6b1567b83abe8d1062f6bf90f56711f316bcefb6835af58742', '0cd45895e670c78b1ac73824d0742b0626baf75984e0ea6c89b2a8b74abbea49');
INSERT INTO event VALUES (8, '2026-11-30T01:28:11.269879+00:00', 'reserved', 't1', '{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":4.0}",1,null,["north"]]],"purpose":"train","round":1,"run":"r1","test":false}', '0cd45895e670c78b1ac73824d0742b0626baf75984e0ea6c89b2a8b74abbea49', '98bcd9fee04d1d910e6a1595c121c2564cdc05c16801ce7536f0a8fd15ead1f2');
INSERT INTO event VALUES (9, '2026-11-30T01:28:11.280806+00:00', 'forfeited', 't1', '{}', '98bcd9fee04d1d910e6a1595c121c2564cdc05c16801ce7536f0a8fd15ead1f2', '3acb76cebffd61e0a1d5a0eacd446c6ce1de54aa169e084e659da5974fc26a2e');
INSERT INTO event VALUES (10, '2026-11-30T01:28:11.292077+00:00', 'reserved', 't2', '{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":4.0}",1,null,["north"]]],"purpose":"train","round":2,"run":"r1","test":false}', '3acb76cebffd61e0a1d5a0eacd446c6ce1de54aa169e084e659da5974fc26a2e', 'b32ac14f5dd38a095b933280c0a3e43211240e4cbf8e1d1941f5d76fd8e69362');
INSERT INTO event VALUES (11, '2026-11-30T01:28:11.302145+00:00', 'committed', 't2', '{"sha256":"80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71"}', 'b32ac14f5dd38a095b933280c0a3e43211240e4cbf8e1d1941f5d76fd8e69362', 'f02d4401bfe26de38eb71c96c421db470c2a99255fc6ba702905a234e996a9bc');
INSERT INTO event VALUES (12, '2026-11-30T01:28:11.315279+00:00', 'run-opened', NULL, '{"fence":1,"run":"q1"}', 'f02d4401bfe26de38eb71c96c421db470c2a99255fc6ba702905a234e996a9bc', '8df7207a983f4ac70e4c85fb2842e0ec87045a8812d42bd53c79ab6bfebfc098');
INSERT INTO event VALUES (13, '2026-11-30T01:28:11.330747+00:00', 'reserved', 'q', '{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":4.0}",1,62500000000,["live"]]],"purpose":"query","round":0,"run":"q1","test":false}', '8df7207a983f4ac70e4c85fb2842e0ec87045a8812d42bd53c79ab6bfebfc098', '9696313a9a308ba8bbe1710344d2fac0e99da184b492a60382d8079fe6298d01');
INSERT INTO event VALUES (14, '2026-11-30T01:28:11.344499+00:00', 'committed', 'q', '{"sha256":"0db52f4076c082518412afd3dd3576e2cb0c63703fd7fed5e23ade60efef31d9"}', '9696313a9a308ba8bbe1710344d2fac0e99da184b492a60382d8079fe6298d01', '63b8b38032766513b8b4c1d39f27f9d5447a2e6a17ab7e0b528c78a0a3acdec8');
INSERT INTO event VALUES (15, '2026-11-30T01:28:11.377566+00:00', 'published', 'q', '{"sha256":"0db52f4076c082518412afd3dd3576e2cb0c63703fd7fed5e23ade60efef31d9"}', '63b8b38032766513b8b4c1d39f27f9d5447a2e6a17ab7e0b528c78a0a3acdec8', '6ce08456ead8a6f7460f48cc2ae2c8f4d754dbc4d609cfb9a2aa9a6b84213408');
INSERT INTO head VALUES (1, 2, 15, '6ce08456ead8a6f7460f48cc2ae2c8f4d754dbc4d609cfb9a2aa9a6b84213408');
INSERT INTO kind VALUES (1, '{"name":"GaussianDpEvent","noise_multiplier":4.0}');
INSERT INTO outbox VALUES ('t0', 'a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e', NULL, '2026-11-30T01:28:11.259379+00:00');
INSERT INTO outbox VALUES ('t2', '80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71', '\x77616974696e67', NULL);
INSERT INTO outbox VALUES ('q', '0db52f4076c082518412afd3dd3576e2cb0c63703fd7fed5e23ade60efef31d9', NULL, '2026-11-30T01:28:11.377566+00:00');
INSERT INTO run VALUES ('r1', 1);
INSERT INTO run VALUES ('q1', 1);
SELECT pg_catalog.setval('account_id_seq', 2, true);
SELECT pg_catalog.setval('admission_id_seq', 1, true);
SELECT pg_catalog.setval('kind_id_seq', 1, true);
ALTER TABLE ONLY account ADD CONSTRAINT account_name_key UNIQUE (name);
ALTER TABLE ONLY account ADD CONSTRAINT account_pkey PRIMARY KEY (id);
ALTER TABLE ONLY admission_line ADD CONSTRAINT admission_line_pkey PRIMARY KEY (admission_id, account_id);
ALTER TABLE ONLY admission ADD CONSTRAINT admission_pkey PRIMARY KEY (id);
ALTER TABLE ONLY admission ADD CONSTRAINT admission_run_key UNIQUE (run);
ALTER TABLE ONLY allowance ADD CONSTRAINT allowance_pkey PRIMARY KEY (admission_id, account_id, kind_id);
ALTER TABLE ONLY charge_line ADD CONSTRAINT charge_line_pkey PRIMARY KEY (txid, account_id, kind_id);
ALTER TABLE ONLY charge ADD CONSTRAINT charge_pkey PRIMARY KEY (txid);
ALTER TABLE ONLY checkpoint ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY event ADD CONSTRAINT event_hash_key UNIQUE (hash);
ALTER TABLE ONLY event ADD CONSTRAINT event_once UNIQUE (txid, kind);
ALTER TABLE ONLY event ADD CONSTRAINT event_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY head ADD CONSTRAINT head_pkey PRIMARY KEY (id);
ALTER TABLE ONLY kind ADD CONSTRAINT kind_key_key UNIQUE (key);
ALTER TABLE ONLY kind ADD CONSTRAINT kind_pkey PRIMARY KEY (id);
ALTER TABLE ONLY outbox ADD CONSTRAINT outbox_pkey PRIMARY KEY (txid);
ALTER TABLE ONLY policy ADD CONSTRAINT policy_pkey PRIMARY KEY (version);
ALTER TABLE ONLY run ADD CONSTRAINT run_pkey PRIMARY KEY (name);
ALTER TABLE ONLY witness ADD CONSTRAINT witness_pkey PRIMARY KEY (seq, name);
CREATE INDEX charge_line_account ON charge_line USING btree (account_id);
CREATE INDEX ix_charge_run ON charge USING btree (run);
CREATE TRIGGER account_forward BEFORE UPDATE ON account FOR EACH ROW WHEN (((new.spent_units < old.spent_units) OR (new.delta_spent_units < old.delta_spent_units) OR (((new.limit_units <> old.limit_units) OR (new.delta_limit_units <> old.delta_limit_units) OR (new.epsilon <> old.epsilon) OR (new.delta <> old.delta)) AND (new.policy <= old.policy)) OR (new.policy < old.policy) OR ((old.state = 'retired'::text) AND (new.state <> 'retired'::text)) OR (new.name IS DISTINCT FROM old.name) OR (new.unit IS DISTINCT FROM old.unit) OR (new.adjacency IS DISTINCT FROM old.adjacency) OR (new.currency IS DISTINCT FROM old.currency) OR (new.rdp_order IS DISTINCT FROM old.rdp_order) OR (new.scope IS DISTINCT FROM old.scope) OR (new.parent IS DISTINCT FROM old.parent) OR (new.overlap IS DISTINCT FROM old.overlap) OR (new.test IS DISTINCT FROM old.test))) EXECUTE FUNCTION ledger_stop('account: spent never falls, terms never change');
CREATE TRIGGER account_kept BEFORE DELETE ON account FOR EACH ROW EXECUTE FUNCTION ledger_stop('account: rows are never deleted');
CREATE TRIGGER account_whole BEFORE TRUNCATE ON account FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('account: rows are never deleted');
CREATE TRIGGER admission_fixed BEFORE UPDATE ON admission FOR EACH ROW EXECUTE FUNCTION ledger_stop('admission: append only');
CREATE TRIGGER admission_kept BEFORE DELETE ON admission FOR EACH ROW EXECUTE FUNCTION ledger_stop('admission: rows are never deleted');
CREATE TRIGGER admission_line_fixed BEFORE UPDATE ON admission_line FOR EACH ROW EXECUTE FUNCTION ledger_stop('admission_line: append only');
CREATE TRIGGER admission_line_kept BEFORE DELETE ON admission_line FOR EACH ROW EXECUTE FUNCTION ledger_stop('admission_line: rows are never deleted');
CREATE TRIGGER admission_line_whole BEFORE TRUNCATE ON admission_line FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('admission_line: rows are never deleted');
CREATE TRIGGER admission_whole BEFORE TRUNCATE ON admission FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('admission: rows are never deleted');
CREATE TRIGGER allowance_forward BEFORE UPDATE ON allowance FOR EACH ROW WHEN (((new.spent < old.spent) OR (new.allowed <> old.allowed))) EXECUTE FUNCTION ledger_stop('allowance: spent never falls, terms never change');
CREATE TRIGGER allowance_kept BEFORE DELETE ON allowance FOR EACH ROW EXECUTE FUNCTION ledger_stop('allowance: rows are never deleted');
CREATE TRIGGER allowance_whole BEFORE TRUNCATE ON allowance FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('allowance: rows are never deleted');
CREATE TRIGGER charge_forward BEFORE UPDATE ON charge FOR EACH ROW WHEN (((old.state <> 'reserved'::text) OR (new.fence <> old.fence) OR (new.run <> old.run))) EXECUTE FUNCTION ledger_stop('charge: spent never falls, terms never change');
CREATE TRIGGER charge_kept BEFORE DELETE ON charge FOR EACH ROW EXECUTE FUNCTION ledger_stop('charge: rows are never deleted');
CREATE TRIGGER charge_line_fixed BEFORE UPDATE ON charge_line FOR EACH ROW EXECUTE FUNCTION ledger_stop('charge_line: append only');
CREATE TRIGGER charge_line_kept BEFORE DELETE ON charge_line FOR EACH ROW EXECUTE FUNCTION ledger_stop('charge_line: rows are never deleted');
CREATE TRIGGER charge_line_whole BEFORE TRUNCATE ON charge_line FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('charge_line: rows are never deleted');
CREATE TRIGGER charge_whole BEFORE TRUNCATE ON charge FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('charge: rows are never deleted');
CREATE TRIGGER checkpoint_fixed BEFORE UPDATE ON checkpoint FOR EACH ROW EXECUTE FUNCTION ledger_stop('checkpoint: append only');
CREATE TRIGGER checkpoint_kept BEFORE DELETE ON checkpoint FOR EACH ROW EXECUTE FUNCTION ledger_stop('checkpoint: rows are never deleted');
CREATE TRIGGER checkpoint_whole BEFORE TRUNCATE ON checkpoint FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('checkpoint: rows are never deleted');
CREATE TRIGGER event_fixed BEFORE UPDATE ON event FOR EACH ROW EXECUTE FUNCTION ledger_stop('event: append only');
CREATE TRIGGER event_kept BEFORE DELETE ON event FOR EACH ROW EXECUTE FUNCTION ledger_stop('event: rows are never deleted');
CREATE TRIGGER event_whole BEFORE TRUNCATE ON event FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('event: rows are never deleted');
CREATE TRIGGER head_forward BEFORE UPDATE ON head FOR EACH ROW WHEN ((new.seq <> (old.seq + 1))) EXECUTE FUNCTION ledger_stop('head: spent never falls, terms never change');
CREATE TRIGGER head_kept BEFORE DELETE ON head FOR EACH ROW EXECUTE FUNCTION ledger_stop('head: rows are never deleted');
CREATE TRIGGER head_whole BEFORE TRUNCATE ON head FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('head: rows are never deleted');
CREATE TRIGGER kind_fixed BEFORE UPDATE ON kind FOR EACH ROW EXECUTE FUNCTION ledger_stop('kind: append only');
CREATE TRIGGER kind_kept BEFORE DELETE ON kind FOR EACH ROW EXECUTE FUNCTION ledger_stop('kind: rows are never deleted');
CREATE TRIGGER kind_whole BEFORE TRUNCATE ON kind FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('kind: rows are never deleted');
CREATE TRIGGER outbox_forward BEFORE UPDATE ON outbox FOR EACH ROW WHEN ((((new.sha256)::text <> (old.sha256)::text) OR ((old.published_at IS NOT NULL) AND (new.published_at IS NULL)))) EXECUTE FUNCTION ledger_stop('outbox: spent never falls, terms never change');
CREATE TRIGGER outbox_kept BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION ledger_stop('outbox: rows are never deleted');
CREATE TRIGGER outbox_whole BEFORE TRUNCATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('outbox: rows are never deleted');
CREATE TRIGGER policy_fixed BEFORE UPDATE ON policy FOR EACH ROW EXECUTE FUNCTION ledger_stop('policy: append only');
CREATE TRIGGER policy_kept BEFORE DELETE ON policy FOR EACH ROW EXECUTE FUNCTION ledger_stop('policy: rows are never deleted');
CREATE TRIGGER policy_whole BEFORE TRUNCATE ON policy FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('policy: rows are never deleted');
CREATE TRIGGER run_forward BEFORE UPDATE ON run FOR EACH ROW WHEN ((new.fence <= old.fence)) EXECUTE FUNCTION ledger_stop('run: spent never falls, terms never change');
CREATE TRIGGER run_kept BEFORE DELETE ON run FOR EACH ROW EXECUTE FUNCTION ledger_stop('run: rows are never deleted');
CREATE TRIGGER run_whole BEFORE TRUNCATE ON run FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('run: rows are never deleted');
CREATE TRIGGER witness_fixed BEFORE UPDATE ON witness FOR EACH ROW EXECUTE FUNCTION ledger_stop('witness: append only');
CREATE TRIGGER witness_kept BEFORE DELETE ON witness FOR EACH ROW EXECUTE FUNCTION ledger_stop('witness: rows are never deleted');
CREATE TRIGGER witness_whole BEFORE TRUNCATE ON witness FOR EACH STATEMENT EXECUTE FUNCTION ledger_stop('witness: rows are never deleted');
ALTER TABLE ONLY account ADD CONSTRAINT account_parent_fkey FOREIGN KEY (parent) REFERENCES account(name);
ALTER TABLE ONLY admission_line ADD CONSTRAINT admission_line_account_id_fkey FOREIGN KEY (account_id) REFERENCES account(id);
ALTER TABLE ONLY admission_line ADD CONSTRAINT admission_line_admission_id_fkey FOREIGN KEY (admission_id) REFERENCES admission(id);
ALTER TABLE ONLY allowance ADD CONSTRAINT allowance_account_id_fkey FOREIGN KEY (account_id) REFERENCES account(id);
ALTER TABLE ONLY allowance ADD CONSTRAINT allowance_admission_id_fkey FOREIGN KEY (admission_id) REFERENCES admission(id);
ALTER TABLE ONLY allowance ADD CONSTRAINT allowance_kind_id_fkey FOREIGN KEY (kind_id) REFERENCES kind(id);
ALTER TABLE ONLY charge_line ADD CONSTRAINT charge_line_account_id_fkey FOREIGN KEY (account_id) REFERENCES account(id);
ALTER TABLE ONLY charge_line ADD CONSTRAINT charge_line_kind_id_fkey FOREIGN KEY (kind_id) REFERENCES kind(id);
ALTER TABLE ONLY charge_line ADD CONSTRAINT charge_line_txid_fkey FOREIGN KEY (txid) REFERENCES charge(txid);
ALTER TABLE ONLY charge ADD CONSTRAINT charge_run_fkey FOREIGN KEY (run) REFERENCES run(name);
ALTER TABLE ONLY outbox ADD CONSTRAINT outbox_txid_fkey FOREIGN KEY (txid) REFERENCES charge(txid);
ALTER TABLE ONLY witness ADD CONSTRAINT witness_seq_fkey FOREIGN KEY (seq) REFERENCES checkpoint(seq);
