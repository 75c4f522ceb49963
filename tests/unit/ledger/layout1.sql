BEGIN TRANSACTION;
CREATE TABLE account (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	adjacency TEXT NOT NULL, 
	currency TEXT NOT NULL, 
	rdp_order FLOAT, 
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
	CHECK (currency IN ('plan', 'rdp')), 
	CHECK ((currency = 'rdp') = (rdp_order IS NOT NULL)), 
	CHECK (limit_units > 0 AND spent_units >= 0 AND held_units >= 0), 
	CHECK (spent_units + held_units <= limit_units), 
	CHECK (delta_limit_units > 0 AND delta_spent_units >= 0), 
	CHECK (delta_spent_units <= delta_limit_units), 
	UNIQUE (name)
);
INSERT INTO "account" VALUES(1,'north','record','add_remove','plan',NULL,0,2.0,1.0e-05,2000000000000,819728330399,0,10000000000000,10000000000000);
INSERT INTO "account" VALUES(2,'live','record','add_remove','rdp',8.0,0,3.0,1.0e-05,1785890832154,40000000000,0,10000000000000,0);
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
INSERT INTO "admission" VALUES(1,'r1','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd',1.0e-05,'silo');
CREATE TABLE admission_line (
	admission_id INTEGER NOT NULL, 
	account_id INTEGER NOT NULL, 
	epsilon FLOAT NOT NULL, 
	accountant TEXT NOT NULL, 
	epsilon_units BIGINT NOT NULL, 
	delta_units BIGINT NOT NULL, 
	PRIMARY KEY (admission_id, account_id), 
	CHECK (epsilon_units > 0 AND delta_units > 0), 
	FOREIGN KEY(admission_id) REFERENCES admission (id), 
	FOREIGN KEY(account_id) REFERENCES account (id)
);
INSERT INTO "admission_line" VALUES(1,1,8.19728330398129201306e-01,'gdp',819728330399,10000000000000);
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
INSERT INTO "allowance" VALUES(1,1,1,5,0,4);
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
	CHECK (state IN ('reserved', 'committed', 'forfeited')), 
	CHECK ((state = 'reserved') = (settled_at IS NULL)), 
	FOREIGN KEY(run) REFERENCES run (name)
);
INSERT INTO "charge" VALUES('t0','r1',0,'train','committed',1,0,'2026-11-29T21:30:37.009473+00:00','2026-11-29T21:30:37.013732+00:00');
INSERT INTO "charge" VALUES('t1','r1',1,'train','forfeited',1,0,'2026-11-29T21:30:37.020481+00:00','2026-11-29T21:30:37.024156+00:00');
INSERT INTO "charge" VALUES('t2','r1',2,'train','committed',2,0,'2026-11-29T21:30:37.025879+00:00','2026-11-29T21:30:37.027211+00:00');
CREATE TABLE charge_line (
	txid TEXT NOT NULL, 
	account_id INTEGER NOT NULL, 
	kind_id INTEGER NOT NULL, 
	count BIGINT NOT NULL, 
	units BIGINT, 
	PRIMARY KEY (txid, account_id, kind_id), 
	CHECK (count > 0), 
	CHECK (units IS NULL OR units > 0), 
	FOREIGN KEY(txid) REFERENCES charge (txid), 
	FOREIGN KEY(account_id) REFERENCES account (id), 
	FOREIGN KEY(kind_id) REFERENCES kind (id)
);
INSERT INTO "charge_line" VALUES('t0',2,1,1,40000000000);
INSERT INTO "charge_line" VALUES('t0',1,1,2,NULL);
INSERT INTO "charge_line" VALUES('t1',1,1,1,NULL);
INSERT INTO "charge_line" VALUES('t2',1,1,1,NULL);
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
	CHECK (kind IN ('account-opened', 'admitted', 'run-opened', 'reserved', 'committed', 'forfeited', 'published')), 
	UNIQUE (hash)
);
INSERT INTO "event" VALUES(1,'2026-11-29T21:30:36.999333+00:00','account-opened',NULL,'{"adjacency":"add_remove","currency":"plan","delta":1e-05,"delta_limit_units":10000000000000,"epsilon":2.0,"limit_units":2000000000000,"name":"north","order":null,"test":false,"unit":"record"}','0000000000000000000000000000000000000000000000000000000000000000','b91cc08c13e5d99fbc9b707ab0c0243f5e2707fdccb807a3576e08e7494f7244');
INSERT INTO "event" VALUES(2,'2026-11-29T21:30:37.000613+00:00','account-opened',NULL,'{"adjacency":"add_remove","currency":"rdp","delta":1e-05,"delta_limit_units":10000000000000,"epsilon":3.0,"limit_units":1785890832154,"name":"live","order":8.0,"test":false,"unit":"record"}','b91cc08c13e5d99fbc9b707ab0c0243f5e2707fdccb807a3576e08e7494f7244','dc05dd3f98aa13902a5e7761a337430bb6cb557b34bba7fa0747b62df4a78aba');
INSERT INTO "event" VALUES(3,'2026-11-29T21:30:37.006847+00:00','admitted',NULL,'{"delta":1e-05,"digest":"dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd","lines":[[0.8197283303981292,"gdp",819728330399,10000000000000,[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":10.0}",5]],["north"]]],"noise_at":"silo","run":"r1"}','dc05dd3f98aa13902a5e7761a337430bb6cb557b34bba7fa0747b62df4a78aba','d16b694d9509d8d8d6321ad366b23e064d16a28621612599a876a34e39e6c7bc');
INSERT INTO "event" VALUES(4,'2026-11-29T21:30:37.008092+00:00','run-opened',NULL,'{"fence":1,"run":"r1"}','d16b694d9509d8d8d6321ad366b23e064d16a28621612599a876a34e39e6c7bc','26ef5b5e7ce1b9abcb5d6cfab3616cba5b21aea638f2d0f63807fd0874c25b54');
INSERT INTO "event" VALUES(5,'2026-11-29T21:30:37.009473+00:00','reserved','t0','{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":10.0}",1,40000000000,["live"]],["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":10.0}",2,null,["north"]]],"purpose":"train","round":0,"run":"r1","test":false}','26ef5b5e7ce1b9abcb5d6cfab3616cba5b21aea638f2d0f63807fd0874c25b54','5e6a642c15c7bd00817e4d74b776bb266e17fd8df4bba215459aa480db819ec8');
INSERT INTO "event" VALUES(6,'2026-11-29T21:30:37.013732+00:00','committed','t0','{"sha256":"277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9"}','5e6a642c15c7bd00817e4d74b776bb266e17fd8df4bba215459aa480db819ec8','77927498a1bf00512ca05670c6ec63922652e076afc9ed392cdceac16e4a321e');
INSERT INTO "event" VALUES(7,'2026-11-29T21:30:37.019106+00:00','published','t0','{"sha256":"277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9"}','77927498a1bf00512ca05670c6ec63922652e076afc9ed392cdceac16e4a321e','f742984a924eaf55dade7706086376fdc8217143a5338a59af1459a19aa64918');
INSERT INTO "event" VALUES(8,'2026-11-29T21:30:37.020481+00:00','reserved','t1','{"fence":1,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":10.0}",1,null,["north"]]],"purpose":"train","round":1,"run":"r1","test":false}','f742984a924eaf55dade7706086376fdc8217143a5338a59af1459a19aa64918','7c73d359d8c9857b508163c7dbf828c72337d04679ec1e2bbfa1f953cf9d1bab');
INSERT INTO "event" VALUES(9,'2026-11-29T21:30:37.022305+00:00','run-opened',NULL,'{"fence":2,"run":"r1"}','7c73d359d8c9857b508163c7dbf828c72337d04679ec1e2bbfa1f953cf9d1bab','346bf0fa98a3547decb70c5d2c4e6da843028cfd082abff7e09ea1bcb3ecbe80');
INSERT INTO "event" VALUES(10,'2026-11-29T21:30:37.024156+00:00','forfeited','t1','{}','346bf0fa98a3547decb70c5d2c4e6da843028cfd082abff7e09ea1bcb3ecbe80','9e18d0b9b92c20c0f1c09a40582eef281b0fe9474b4b4e74dfb75508f8b2af02');
INSERT INTO "event" VALUES(11,'2026-11-29T21:30:37.025879+00:00','reserved','t2','{"fence":2,"lines":[["{\"name\":\"GaussianDpEvent\",\"noise_multiplier\":10.0}",1,null,["north"]]],"purpose":"train","round":2,"run":"r1","test":false}','9e18d0b9b92c20c0f1c09a40582eef281b0fe9474b4b4e74dfb75508f8b2af02','590ccf8a5c6c40bdb6bbc18de05a723bb08ba036e581a11b00528f1c2397c5d6');
INSERT INTO "event" VALUES(12,'2026-11-29T21:30:37.027211+00:00','committed','t2','{"sha256":"80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71"}','590ccf8a5c6c40bdb6bbc18de05a723bb08ba036e581a11b00528f1c2397c5d6','1eadf3033503cf9f8be593cd0eb9c23da6dae7687dddc4b43948e2973d293a30');
CREATE TABLE head (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,1,12,'1eadf3033503cf9f8be593cd0eb9c23da6dae7687dddc4b43948e2973d293a30');
CREATE TABLE kind (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
INSERT INTO "kind" VALUES(1,'{"name":"GaussianDpEvent","noise_multiplier":10.0}');
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
INSERT INTO "outbox" VALUES('t0','277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9',NULL,'2026-11-29T21:30:37.019106+00:00');
INSERT INTO "outbox" VALUES('t2','80cfa3e7f28dde4df64436b652230aff28d7779116d1369c21ef2bbf37261d71',X'77616974696E67',NULL);
CREATE TABLE run (
	name TEXT NOT NULL, 
	fence INTEGER NOT NULL, 
	PRIMARY KEY (name), 
	CHECK (fence > 0)
);
INSERT INTO "run" VALUES('r1',2);
CREATE INDEX ix_charge_run ON charge (run);
CREATE INDEX charge_line_account ON charge_line (account_id);
CREATE TRIGGER event_kept BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'event: rows are never deleted'); END;
CREATE TRIGGER charge_line_kept BEFORE DELETE ON charge_line BEGIN SELECT RAISE(ABORT, 'charge_line: rows are never deleted'); END;
CREATE TRIGGER admission_kept BEFORE DELETE ON admission BEGIN SELECT RAISE(ABORT, 'admission: rows are never deleted'); END;
CREATE TRIGGER admission_line_kept BEFORE DELETE ON admission_line BEGIN SELECT RAISE(ABORT, 'admission_line: rows are never deleted'); END;
CREATE TRIGGER kind_kept BEFORE DELETE ON kind BEGIN SELECT RAISE(ABORT, 'kind: rows are never deleted'); END;
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
CREATE TRIGGER account_forward BEFORE UPDATE ON account WHEN NEW.spent_units < OLD.spent_units OR NEW.delta_spent_units < OLD.delta_spent_units OR NEW.limit_units <> OLD.limit_units OR NEW.delta_limit_units <> OLD.delta_limit_units OR NEW.name <> OLD.name OR NEW.unit <> OLD.unit OR NEW.adjacency <> OLD.adjacency OR NEW.currency <> OLD.currency OR NEW.rdp_order IS NOT OLD.rdp_order OR NEW.test <> OLD.test BEGIN SELECT RAISE(ABORT, 'account: spent never falls, terms never change'); END;
CREATE TRIGGER allowance_forward BEFORE UPDATE ON allowance WHEN NEW.spent < OLD.spent OR NEW.allowed <> OLD.allowed BEGIN SELECT RAISE(ABORT, 'allowance: spent never falls, terms never change'); END;
CREATE TRIGGER run_forward BEFORE UPDATE ON run WHEN NEW.fence <= OLD.fence BEGIN SELECT RAISE(ABORT, 'run: spent never falls, terms never change'); END;
CREATE TRIGGER charge_forward BEFORE UPDATE ON charge WHEN OLD.state <> 'reserved' OR NEW.fence <> OLD.fence OR NEW.run <> OLD.run BEGIN SELECT RAISE(ABORT, 'charge: spent never falls, terms never change'); END;
CREATE TRIGGER outbox_forward BEFORE UPDATE ON outbox WHEN NEW.sha256 <> OLD.sha256 OR (OLD.published_at IS NOT NULL AND NEW.published_at IS NULL) BEGIN SELECT RAISE(ABORT, 'outbox: spent never falls, terms never change'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.seq <> OLD.seq + 1 BEGIN SELECT RAISE(ABORT, 'head: spent never falls, terms never change'); END;
COMMIT;
