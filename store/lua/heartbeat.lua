-- Extends leases, keeps the progress that comes along, and tells what the caller does not know.
-- KEYS: the instance's.
-- ARGV: lease ms; number of leases; for each: worker, its lease, p and the progress or - and ''; then workers that hold nothing.
-- Returns: 0; a letter for each lease: h held, l lost, c held and to be cancelled; for each of the other workers that holds
--   a job after all: its lease, record, run, until these have 1 MiB.

local bad = foreign()
if bad then return bad end
local leaseFor, n = tonumber(ARGV[1]), tonumber(ARGV[2])
local names, others = {}, {}
for i = 1, n do names[i] = ARGV[4 * i - 1] end
for i = 4 * n + 3, #ARGV do others[#others + 1] = ARGV[i] end
local held, unknown = look('HMGET', workers, names), look('HMGET', workers, others)
local now = clock()
local verdict, ids, deadlines, reports = {}, {}, {}, {}
for i = 1, n do
  local lease = ARGV[4 * i]
  if held[i] == lease then
    local id = sub(lease, 1, 16)
    verdict[i] = 'h'
    ids[#ids + 1] = id
    deadlines[#deadlines + 1] = whole(now + leaseFor)
    deadlines[#deadlines + 1] = names[i]
    if ARGV[4 * i + 1] == 'p' then
      reports[#reports + 1] = id
      reports[#reports + 1] = ARGV[4 * i + 2]
    end
  else
    verdict[i] = 'l'
  end
end
local asked, k = look('ZMSCORE', cancels, ids), 0
for i = 1, n do
  if verdict[i] == 'h' then
    k = k + 1
    if asked[k] then verdict[i] = 'c' end
  end
end
local found, bytes = {}, 0
for i = 1, #others do
  if unknown[i] and bytes < 1048576 then
    local id = sub(unknown[i], 1, 16)
    local record = call('HGET', jobs, id)
    local run = runOf(id, record)
    if record and run then bytes = bytes + #record end
    if record and run and (bytes <= 1048576 or #found == 0) then
      local at = #found
      found[at + 1], found[at + 2], found[at + 3] = unknown[i], record, run
    end
  end
end
add('ZADD', doing, deadlines)
add('HSET', progress, reports)
return { 0, table.concat(verdict), found }
