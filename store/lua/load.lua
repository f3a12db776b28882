-- Reads step records of a job, some 1,000 at a time or one by its name.
-- KEYS: the instance's.
-- ARGV: job; the cursor, 0 at first; a name, or '' for all.
-- Returns: 0; 1 if there is such a job, else 0; now in ms; its entry in stepped, or ''; the next cursor, 0 at the end; names and records.
--   One may come twice.

local bad = foreign()
if bad then return bad end
local id, cursor, name = ARGV[1], ARGV[2], ARGV[3]
local now, known = whole(clock()), call('HEXISTS', jobs, id)
local h = head(id)
local key, wrong = recordsOf(id)
if wrong then return wrong end
if not h then return { 0, known, now, '', '0', {} } end
if name ~= '' then
  local record = call('HGET', key, name)
  return { 0, known, now, headed(h), '0', record and { name, record } or {} }
end
local step = math.max(1, math.min(1000, floor(1048576 * math.max(1, h[4]) / math.max(1, h[5])))) -- about a MiB of them
local page = call('HSCAN', key, cursor, 'COUNT', step)
return { 0, known, now, headed(h), page[1], page[2] }
