BEGIN TRANSACTION;
CREATE TABLE account (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	adjacency TEXT NOT NULL, 
	currency TEXT NOT NULL, 
	rdp_order FLOAT, 
	scope TEXT NOT NULL, 
	parent TEXT, 
	overlap INTEGER, 
	state TEXT NOT NULL, 
	policy INTEGER NOT NULL, 
	test BOOLEAN NOT NULL, 
	epsilon FLOAT NOT NULL, 
	delta FLOAT NOT NULL, 
	limit_units BIGINT NOT NULL, 
	spent_units BIGINT NOT NULL, 
	held_units BIGINT NOT NULL, 
	delta_limit_units BIGINT NOT NULL, 
	delta_spent_units BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (length(name) > 0), 
	CHECK (unit IN ('record', 'user', 'client')), 
	CHECK (adjacency IN ('add_remove', 'replace_one', 'zero_out')), 
	CHECK (currency IN ('plan', 'rdp', 'gdp', 'zcdp', 'pure')), 
	CHECK (scope IN ('federation', 'domain', 'silo', 'block', 'run', 'analyst')), 
	CHECK (state IN ('open', 'frozen', 'retired')), 
	CHECK (overlap IS NULL OR overlap > 0), 
	CHECK (parent IS NULL OR parent <> name), 
	CHECK ((currency = 'rdp') = (rdp_order IS NOT NULL)), 
	CHECK (limit_units > 0 AND spent_units >= 0 AND held_units >= 0), 
	CHECK (spent_units + held_units <= limit_units), 
	CHECK (delta_limit_units >= 0 AND delta_spent_units >= 0), 
	CHECK ((currency = 'pure') = (delta_limit_units = 0)), 
	CHECK (delta_spent_units <= delta_limit_units), 
	UNIQUE (name), 
	FOREIGN KEY(parent) REFERENCES account (name)
);
INSERT INTO "account" VALUES(1,'nörd','record','add_remove','plan',NULL,'silo',NULL,NULL,'open',0,0,2.0,0.0001,2000000000000,1554981691533,0,100000000000000,10000000000000);
INSERT INTO "account" VALUES(2,'live','record','add_remove','rdp',8.0,'silo',NULL,NULL,'open',0,0,4.0,0.0001,3114831559725,0,0,100000000000000,0);
CREATE TABLE admission (
	id INTEGER NOT NULL, 
	run TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	delta FLOAT NOT NULL, 
	noise_at TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (noise_at IN ('silo', 'sum', 'coordinator')), 
	UNIQUE (run)
);
INSERT INTO "admission" VALUES(1,'r1','plan',1.0e-05,'silo');
CREATE TABLE admission_line (
	admission_id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	epsilon FLOAT NOT NULL, 
	accountant TEXT NOT NULL, 
	epsilon_units BIGINT NOT NULL, 
	delta_units BIGINT NOT NULL, 
	derived BOOLEAN NOT NULL, 
	PRIMARY KEY (admission_id, account_id), 
	CHECK (epsilon_units > 0 AND delta_units > 0), 
	FOREIGN KEY(admission_id) REFERENCES admission (id), 
	FOREIGN KEY(account_id) REFERENCES account (id)
);
INSERT INTO "admission_line" VALUES(1,1,1.55498169153220633376e+00,'gdp',1554981691533,10000000000000,0);
CREATE TABLE allowance (
	admission_id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	kind_id INTEGER NOT NULL, 
	allowed BIGINT NOT NULL, 
	held BIGINT NOT NULL, 
	spent BIGINT NOT NULL, 
	PRIMARY KEY (admission_id, account_id, kind_id), 
	CHECK (allowed > 0 AND held >= 0 AND spent >= 0), 
	CHECK (held + spent <= allowed), 
	FOREIGN KEY(admission_id) REFERENCES admission (id), 
	FOREIGN KEY(account_id) REFERENCES account (id), 
	FOREIGN KEY(kind_id) REFERENCES kind (id)
);
INSERT INTO "allowance" VALUES(1,1,1,4,0,3);
CREATE TABLE charge (
	txid TEXT NOT NULL, 
	run TEXT NOT NULL, 
	round INTEGER, 
	purpose TEXT NOT NULL, 
	state TEXT NOT NULL, 
	fence INTEGER NOT NULL, 
	test BOOLEAN NOT NULL, 
	reserved_at TEXT NOT NULL, 
	settled_at TEXT, 
	PRIMARY KEY (txid), 
	CHECK (length(txid) > 0), 
	CHECK (purpose IN ('train', 'evaluate', 'metric', 'tune', 'query', 'synthetic', 'clip-quantile', 'attack-audit')), 
	CHECK (state IN ('reserved', 'committed', 'forfeited', 'aborted')), 
	CHECK ((state = 'reserved') = (settled_at IS NULL)), 
	FOREIGN KEY(run) REFERENCES run (name)
);
INSERT INTO "charge" VALUES('ü0','r1',0,'train','committed',1,0,'2026-11-30T00:29:00.846035+00:00','2026-11-30T00:29:00.848930+00:00');
INSERT INTO "charge" VALUES('ü1','r1',1,'train','committed',1,0,'2026-11-30T00:29:00.852798+00:00','2026-11-30T00:29:00.854424+00:00');
INSERT INTO "charge" VALUES('ü2','r1',2,'train','forfeited',1,0,'2026-11-30T00:29:00.856405+00:00','2026-11-30T00:29:00.862383+00:00');
CREATE TABLE charge_line (
	txid TEXT NOT NULL, 
	account_id INTEGER NOT NULL, 
	kind_id INTEGER NOT NULL, 
	count BIGINT NOT NULL, 
	units BIGINT, 
	derived BOOLEAN NOT NULL, 
	consent TEXT, 
	PRIMARY KEY (txid, account_id, kind_id), 
	CHECK (units IS NOT NULL OR NOT derived), 
	CHECK (count > 0), 
	CHECK (units IS NULL OR units > 0), 
	FOREIGN KEY(txid) REFERENCES charge (txid), 
	FOREIGN KEY(account_id) REFERENCES account (id), 
	FOREIGN KEY(kind_id) REFERENCES kind (id)
);
INSERT INTO "charge_line" VALUES('ü0',1,1,1,NULL,0,'granted');
INSERT INTO "charge_line" VALUES('ü1',1,1,1,NULL,0,'granted');
INSERT INTO "charge_line" VALUES('ü2',1,1,1,NULL,0,'granted');
CREATE TABLE checkpoint (
	seq INTEGER NOT NULL, 
	root VARCHAR(64) NOT NULL, 
	note TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE TABLE event (
	seq INTEGER NOT NULL, 
	ts TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	txid TEXT, 
	body TEXT NOT NULL, 
	prev VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (seq), 
	CONSTRAINT event_once UNIQUE (txid, kind), 
	CHECK (kind IN ('account-opened', 'limit-changed', 'frozen', 'thawed', 'retired', 'policy', 'admitted', 'run-opened', 'reserved', 'committed', 'forfeited', 'aborted', 'published', 'refused', 'checkpoint', 'witnessed', 'migrated')), 
	UNIQUE (hash)
);
INSERT INTO "event" VALUES(1,'2026-11-30T00:29:00.828022+00:00','account-opened',NULL,'{"adjacency":"add_remove","currency":"plan","delta":0.0001,"delta_limit_units":100000000000000,"epsilon":2.0,"limit_units":2000000000000,"name":"n\u00f6rd","order":null,"overlap":null,"parent":null,"scope":"silo","test":false,"unit":"record"}','0000000000000000000000000000000000000000000000000000000000000000','07e63e1eb3bf1b241ab4434978f7d4336ae85c6150576b2a40cf30ef2c54777c');
INSERT INTO "event" VALUES(2,'2026-11-30T00:29:00.836968+00:00','account-opened',NULL,'{"adjacency":"add_remove","currency":"rdp","delta":0.0001,"delta_limit_units":100000000000000,"epsilon":4.0,"limit_units":3114831559725,"name":"live","order":8.0,"overlap":null,"parent":null,"scope":"silo","test":false,"unit":"record"}','07e63e1eb3bf1b241ab4434978f7d4336ae85c6150576b2a40cf30ef2c54777c','08cd4ac141b35538a3ea5940854be9d1700d00c1c816d2d3bae73462f08181e4');
INSERT INTO "event" VALUES(3,'2026-11-30T00:29:00.843135+00:00','admitted',NULL,'{"delta":1e-05,"digest":"plan","lines":[[1.5549816915322063,"gdp",1554981691533,10000000000000,[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":5.0}",4]],["n\u00f6rd"]]],"noise_at":"silo","run":"r1"}','08cd4ac141b35538a3ea5940854be9d1700d00c1c816d2d3bae73462f08181e4','6915796bd5ae7309bc6f990092a3f9edbc69a14c7f16fad114f6901062874742');
INSERT INTO "event" VALUES(4,'2026-11-30T00:29:00.844512+00:00','run-opened',NULL,'{"fence":1,"run":"r1"}','6915796bd5ae7309bc6f990092a3f9edbc69a14c7f16fad114f6901062874742','6f99ab1975f2ae296791e4f077dab067f12e1e842b251781c9e541bbe8221ec4');
INSERT INTO "event" VALUES(5,'2026-11-30T00:29:00.846035+00:00','reserved','ü0','{"consents":{"n\u00f6rd":"granted"},"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":5.0}",1,null,["n\u00f6rd"]]],"purpose":"train","round":0,"run":"r1","test":false}','6f99ab1975f2ae296791e4f077dab067f12e1e842b251781c9e541bbe8221ec4','0b109bebd66fc2a138168c323e3d63e4f05aaf509f99f050a7b2c5c4e9399627');
INSERT INTO "event" VALUES(6,'2026-11-30T00:29:00.848930+00:00','committed','ü0','{"sha256":"80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71"}','0b109bebd66fc2a138168c323e3d63e4f05aaf509f99f050a7b2c5c4e9399627','70d2c80587f6877215258e1de437d44b1d5c628d4431eee57ea4ce0700440878');
INSERT INTO "event" VALUES(7,'2026-11-30T00:29:00.852798+00:00','reserved','ü1','{"consents":{"n\u00f6rd":"granted"},"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":5.0}",1,null,["n\u00f6rd"]]],"purpose":"train","round":1,"run":"r1","test":false}','70d2c80587f6877215258e1de437d44b1d5c628d4431eee57ea4ce0700440878','4d98eafa33c891c5c0a4f4a14c0216f9bf1f5d0da6a62985befd364d4e4787dc');
INSERT INTO "event" VALUES(8,'2026-11-30T00:29:00.854424+00:00','committed','ü1','{"sha256":"80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71"}','4d98eafa33c891c5c0a4f4a14c0216f9bf1f5d0da6a62985befd364d4e4787dc','34bf78445ff8506415e8034a38ee2d5fd61107ea1d1b1f5a4ca8850f3cc904e1');
INSERT INTO "event" VALUES(9,'2026-11-30T00:29:00.856405+00:00','reserved','ü2','{"consents":{"n\u00f6rd":"granted"},"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":5.0}",1,null,["n\u00f6rd"]]],"purpose":"train","round":2,"run":"r1","test":false}','34bf78445ff8506415e8034a38ee2d5fd61107ea1d1b1f5a4ca8850f3cc904e1','b122fbb142dc3b045b6bc184f953fd7d23d472604539ca5a37ad666a37e8039d');
INSERT INTO "event" VALUES(10,'2026-11-30T00:29:00.860039+00:00','published','ü0','{"sha256":"80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71"}','b122fbb142dc3b045b6bc184f953fd7d23d472604539ca5a37ad666a37e8039d','203aacce52d871b8e559d208c89f2656787611402d0bff52a0e9d828fc5f4958');
INSERT INTO "event" VALUES(11,'2026-11-30T00:29:00.862383+00:00','forfeited','ü2','{}','203aacce52d871b8e559d208c89f2656787611402d0bff52a0e9d828fc5f4958','ba1cb7301cdafe045b3660a93bed4171ff3fe2f84e34fa58826a7bdc098825fd');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,2,11,'ba1cb7301cdafe045b3660a93bed4171ff3fe2f84e34fa58826a7bdc098825fd');
CREATE TABLE kind (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
INSERT INTO "kind" VALUES(1,'{"name":"GaussianDpEvent","noise_multiplier":5.0}');
CREATE TABLE outbox (
	txid TEXT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	payload BLOB, 
	published_at TEXT, 
	PRIMARY KEY (txid), 
	CHECK (length(sha256) = 64), 
	CHECK ((payload IS NULL) = (published_at IS NOT NULL)), 
	FOREIGN KEY(txid) REFERENCES charge (txid)
);
INSERT INTO "outbox" VALUES('ü0','80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71',NULL,'2026-11-30T00:29:00.860039+00:00');
INSERT INTO "outbox" VALUES('ü1','80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71',X'77616974696E67',NULL);
CREATE TABLE policy (
	version INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	signed_by TEXT NOT NULL, 
	signature TEXT NOT NULL, 
	PRIMARY KEY (version), 
	CHECK (version > 0)
);
CREATE TABLE run (
	name TEXT NOT NULL, 
	fence INTEGER NOT NULL, 
	PRIMARY KEY (name), 
	CHECK (fence > 0)
);
INSERT INTO "run" VALUES('r1',1);
CREATE TABLE witness (
	seq INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	signature TEXT NOT NULL, 
	PRIMARY KEY (seq, name), 
	FOREIGN KEY(seq) REFERENCES checkpoint (seq)
);
CREATE INDEX ix_charge_run ON charge (run);
CREATE INDEX charge_line_account ON charge_line (account_id);
CREATE TRIGGER event_kept BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'event: rows are never deleted'); END;
CREATE TRIGGER charge_line_kept BEFORE DELETE ON charge_line BEGIN SELECT RAISE(ABORT, 'charge_line: rows are never deleted'); END;
CREATE TRIGGER admission_kept BEFORE DELETE ON admission BEGIN SELECT RAISE(ABORT, 'admission: rows are never deleted'); END;
CREATE TRIGGER admission_line_kept BEFORE DELETE ON admission_line BEGIN SELECT RAISE(ABORT, 'admission_line: rows are never deleted'); END;
CREATE TRIGGER kind_kept BEFORE DELETE ON kind BEGIN SELECT RAISE(ABORT, 'kind: rows are never deleted'); END;
CREATE TRIGGER policy_kept BEFORE DELETE ON policy BEGIN SELECT RAISE(ABORT, 'policy: rows are never deleted'); END;
CREATE TRIGGER checkpoint_kept BEFORE DELETE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint: rows are never deleted'); END;
CREATE TRIGGER witness_kept BEFORE DELETE ON witness BEGIN SELECT RAISE(ABORT, 'witness: rows are never deleted'); END;
CREATE TRIGGER head_kept BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'head: rows are never deleted'); END;
CREATE TRIGGER account_kept BEFORE DELETE ON account BEGIN SELECT RAISE(ABORT, 'account: rows are never deleted'); END;
CREATE TRIGGER allowance_kept BEFORE DELETE ON allowance BEGIN SELECT RAISE(ABORT, 'allowance: rows are never deleted'); END;
CREATE TRIGGER run_kept BEFORE DELETE ON run BEGIN SELECT RAISE(ABORT, 'run: rows are never deleted'); END;
CREATE TRIGGER charge_kept BEFORE DELETE ON charge BEGIN SELECT RAISE(ABORT, 'charge: rows are never deleted'); END;
CREATE TRIGGER outbox_kept BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'outbox: rows are never deleted'); END;
CREATE TRIGGER event_fixed BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'event: append only'); END;
CREATE TRIGGER charge_line_fixed BEFORE UPDATE ON charge_line BEGIN SELECT RAISE(ABORT, 'charge_line: append only'); END;
CREATE TRIGGER admission_fixed BEFORE UPDATE ON admission BEGIN SELECT RAISE(ABORT, 'admission: append only'); END;
CREATE TRIGGER admission_line_fixed BEFORE UPDATE ON admission_line BEGIN SELECT RAISE(ABORT, 'admission_line: append only'); END;
CREATE TRIGGER kind_fixed BEFORE UPDATE ON kind BEGIN SELECT RAISE(ABORT, 'kind: append only'); END;
CREATE TRIGGER policy_fixed BEFORE UPDATE ON policy BEGIN SELECT RAISE(ABORT, 'policy: append only'); END;
CREATE TRIGGER checkpoint_fixed BEFORE UPDATE ON checkpoint BEGIN SELECT RAISE(ABORT, 'checkpoint: append only'); END;
CREATE TRIGGER witness_fixed BEFORE UPDATE ON witness BEGIN SELECT RAISE(ABORT, 'witness: append only'); END;
CREATE TRIGGER account_forward BEFORE UPDATE ON account WHEN NEW.spent_units < OLD.spent_units OR NEW.delta_spent_units < OLD.delta_spent_units OR (NEW.limit_units <> OLD.limit_units OR NEW.delta_limit_units <> OLD.delta_limit_units OR NEW.epsilon <> OLD.epsilon OR NEW.delta <> OLD.delta) AND NEW.policy <= OLD.policy OR NEW.policy < OLD.policy OR OLD.state = 'retired' AND NEW.state <> 'retired' OR NEW.name IS NOT OLD.name OR NEW.unit IS NOT OLD.unit OR NEW.adjacency IS NOT OLD.adjacency OR NEW.currency IS NOT OLD.currency OR NEW.rdp_order IS NOT OLD.rdp_order OR NEW.scope IS NOT OLD.scope OR NEW.parent IS NOT OLD.parent OR NEW.overlap IS NOT OLD.overlap OR NEW.test IS NOT OLD.test BEGIN SELECT RAISE(ABORT, 'account: spent never falls, terms never change'); END;
CREATE TRIGGER allowance_forward BEFORE UPDATE ON allowance WHEN NEW.spent < OLD.spent OR NEW.allowed <> OLD.allowed BEGIN SELECT RAISE(ABORT, 'allowance: spent never falls, terms never change'); END;
CREATE TRIGGER run_forward BEFORE UPDATE ON run WHEN NEW.fence <= OLD.fence BEGIN SELECT RAISE(ABORT, 'run: spent never falls, terms never change'); END;
CREATE TRIGGER charge_forward BEFORE UPDATE ON charge WHEN OLD.state <> 'reserved' OR NEW.fence <> OLD.fence OR NEW.run <> OLD.run BEGIN SELECT RAISE(ABORT, 'charge: spent never falls, terms never change'); END;
CREATE TRIGGER outbox_forward BEFORE UPDATE ON outbox WHEN NEW.sha256 <> OLD.sha256 OR (OLD.published_at IS NOT NULL AND NEW.published_at IS NULL) BEGIN SELECT RAISE(ABORT, 'outbox: spent never falls, terms never change'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.seq <> OLD.seq + 1 BEGIN SELECT RAISE(ABORT, 'head: spent never falls, terms never change'); END;
COMMIT;
