-- Removes an instance with all its jobs.
-- KEYS: the instance's.
-- ARGV: 1 to do so although jobs are doing, else 0.
-- Returns: 0; how many jobs are doing, in which case, unless forced, nothing was removed; 1 if only steps were removed and there are more, else 0.

local bad = foreign()
if bad then return bad end
local n = call('ZCARD', doing)
if n > 0 and ARGV[1] ~= '1' then return { 0, n, 0 } end
if live[stepped] then -- the records of jobs' steps first, a thousand jobs at a time
  local page, ids = call('HSCAN', stepped, 0, 'COUNT', 1000), {}
  for k = 1, #page[2], 2 do
    ids[#ids + 1] = page[2][k]
    redis.pcall('UNLINK', recordsKey(page[2][k]))
  end
  drop('HDEL', stepped, ids)
  if page[1] ~= '0' then return { 0, 0, 1 } end
end
for i = 1, #KEYS do redis.pcall('UNLINK', KEYS[i]) end
return { 0, 0, 0 }
